"""Cold starts: the shipped figures keep their promises, and a few are made again here.

The long forms are `python -m benchmarks.cold_starts` and `python -m benchmarks.cold_devices`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.torch_memory import PeakMeter, simulated_allocator
from benchmarks import cold_devices, cold_starts
from benchmarks.cold_devices import Start, forecasters, small_segments

PAGE = (cold_starts.FIGURES.parent / "README.md").read_text()
STARTS = cold_starts.read()
ENDS, BROKEN = cold_devices.read()


def test_the_page_has_both_tables() -> None:
    assert cold_starts.as_tables(STARTS) in PAGE
    assert cold_devices.as_table(ENDS) in PAGE


def test_ten_decoders_start_in_every_way_and_none_below_what_it_took() -> None:
    assert len(cold_starts.DECODERS) == 10
    assert [(start.decoder, start.way) for start in STARTS] == [
        (decoder, way) for decoder in cold_starts.DECODERS for way in cold_starts.WAYS
    ]
    for start in STARTS:
        assert start.binding_term == "forecast"
        assert start.allocated_bytes + start.gradient_bytes >= start.observed_bytes
        assert start.required_bytes >= start.allocated_bytes


@pytest.mark.parametrize(
    ("decoder", "way"), [("Llama", "LoRA"), ("Qwen3", "hidden states, no gradients"), ("Qwen3Moe", "full")]
)
def test_a_first_wave_costs_no_more_than_its_price(decoder: str, way: str, meter: PeakMeter) -> None:
    start = cold_starts.cold_start(decoder, way, most_rows=1_024, meter=meter)
    assert start.forecast_bytes > 0
    assert start.allocated_bytes + start.gradient_bytes >= start.observed_bytes
    assert start.forecast_permille < 1_300, "and is a forecast, not a fright"


def test_a_thousand_random_starts_kept_every_promise() -> None:
    assert sum(line.starts for line in ENDS) == 1_000
    assert not BROKEN
    let_in = [line for line in ENDS if line.first.startswith("let in")]
    assert sum(line.starts for line in let_in if line.holds) > 300
    assert all(line.how == "ran" and line.failures == 0 for line in let_in if line.holds)
    assert {line.how for line in let_in if not line.holds} >= {"ran", "ran out", "given up"}, (
        "and it was put to the test"
    )
    assert {line.first for line in ENDS} >= {"let in", "tried", "refused"}
    assert {line.device for line in ENDS} == set(cold_devices.DEVICES)


def test_random_starts_on_random_devices() -> None:
    """Twelve that were not drawn for the figures, with one model."""
    made = {"full": forecasters(["full"])["full"]}
    seen = set()
    for seed in range(10_000, 10_012):
        start = replace(Start.drawn(seed), model="full")
        with small_segments():
            line, broken = cold_devices.judged(start, made["full"], 256)
        assert not broken, (start, broken)
        seen.add((line.first, line.how))
    assert ("let in", "ran") in seen and len(seen) >= 3
    assert simulated_allocator.LARGE_SEGMENT_BYTES == 20 << 20


def test_a_broken_promise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that gives out too early runs out where the forecast holds."""
    made, start = forecasters(["full"])["full"], Start(
        seed=1, model="full", kind="labels", device="exact", share=1.5, extra=0.0, owned=False, has_gradients=False
    )  # fmt: skip
    line, broken = cold_devices.judged(start, made, 256)
    assert (line.first, line.holds, line.how, broken) == ("let in", True, "ran", [])
    limited = cold_devices.Device.with_room_for

    def scarce(device: cold_devices.Device, wave_bytes: int) -> None:
        limited(device, wave_bytes)
        if wave_bytes < cold_devices.ROOMY_BYTES // 2:
            device.limit_bytes //= 4  # what runs out, not what is claimed

    monkeypatch.setattr(cold_devices.Device, "with_room_for", scarce)
    line, broken = cold_devices.judged(start, made, 256)
    assert line.holds and broken == ["ran out although the forecast holds"]
