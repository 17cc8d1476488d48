"""The replay of traces: prices by what was known, exact scores, and what the shipped traces show."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import LAWS, PricingError, Profile, Safety, allocated_bytes, observe
from pricing.evidence.backtest import Backtest, Order, ReplayedWave, backtest, ordered, quantile, replay, score
from pricing.evidence.trace import TraceWave, read_trace
from pricing.kernel.rate_laws import WARM
from tests.making import a_wave

EVIDENCE = Path(__file__).parents[2] / "spec" / "evidence" / "h200"
TRACES = {name: read_trace(EVIDENCE / f"{name}-1.jsonl") for name in ("dense", "moe", "gdn_moe")}


def recorded(index: int, rows: int, peak_bytes: int) -> TraceWave:
    return TraceWave(
        index=index,
        wave=a_wave(rows, 0),
        peak_bytes=peak_bytes,
        forward_peak_bytes=peak_bytes // 2,
        retained_bytes=peak_bytes // 4,
    )


def replayed(price_bytes: int, peak_bytes: int) -> ReplayedWave:
    return ReplayedWave(
        index=0,
        packed_rows=1,
        logical_rows=1,
        price_bytes=price_bytes,
        peak_bytes=peak_bytes,
        binding_term="warm",
    )


def test_a_wave_is_priced_by_the_waves_before_it_and_by_no_other() -> None:
    waves = [recorded(0, 100, 1_000), recorded(1, 100, 500), recorded(2, 200, 3_000)]
    first, second, third = replay(waves, WARM)

    assert (first.price_bytes, first.binding_term) == (0, "cold")
    assert (second.price_bytes, second.binding_term) == (1_100, "all_readings")  # 10 B a row, the seed's
    assert (third.price_bytes, third.binding_term) == (1_100, "warm")  # 5 B a row for 200 rows
    assert third.is_under and third.over == Fraction(1_100, 3_000) - 1


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TRACES)
def test_the_replay_is_what_a_trainer_would_have_done(name: str, law: str) -> None:
    profile, waves = Profile(), TRACES[name]
    for wave, seen in zip(waves, replay(waves, LAWS[law], Safety.parse("51/50")), strict=True):
        assert seen.price_bytes == allocated_bytes(wave.wave, profile, LAWS[law], Safety.parse("51/50"))
        for reading in wave.readings:
            profile = observe(profile, reading)


def test_a_score_counts_and_measures_what_was_not_skipped() -> None:
    result = score([replayed(0, 10), replayed(9, 10), replayed(10, 10), replayed(15, 10), replayed(30, 10)], skip=1)

    assert (result.scored, result.under) == (4, 1)
    assert result.over_min == Fraction(-1, 10)
    assert result.over_median == Fraction(1, 4)  # halfway between 0 and 1/2
    assert result.over_p95 == Fraction(1, 2) + Fraction(85, 100) * Fraction(3, 2)
    assert result.over_max == 2
    assert result.over_gib_median == Fraction(5, 2 * (1 << 30))


def test_nothing_left_to_score_is_said_and_not_made_up() -> None:
    result = score([replayed(1, 1)], skip=3)

    assert result.to_json() == {
        "scored": 0,
        "under": 0,
        "over_min": None,
        "over_median": None,
        "over_p95": None,
        "over_max": None,
        "over_gib_median": None,
    }
    with pytest.raises(PricingError, match="-1"):
        score([], skip=-1)


@given(values=st.lists(st.fractions(), min_size=1, max_size=30), share=st.fractions(0, 1))
def test_a_quantile_lies_between_its_neighbours(values: list[Fraction], share: Fraction) -> None:
    ascending = sorted(values)
    at = quantile(ascending, share)
    position = share * (len(values) - 1)

    assert ascending[int(position)] <= at <= ascending[min(int(position) + 1, len(values) - 1)]
    assert quantile(ascending, Fraction(0)) == ascending[0]
    assert quantile(ascending, Fraction(1)) == ascending[-1]


@given(values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=40), percent=st.integers(0, 100))
def test_a_quantile_is_that_of_numpy(values: list[int], percent: int) -> None:
    numpy = pytest.importorskip("numpy")
    ours = quantile(sorted(Fraction(value) for value in values), Fraction(percent, 100))

    assert float(ours) == pytest.approx(float(numpy.percentile(values, percent)), abs=1e-9)


def test_orders() -> None:
    waves = [recorded(at, rows, 10) for at, rows in enumerate((5, 9, 1, 9))]

    assert [wave.index for wave in ordered(waves, Order.RECORDED)] == [0, 1, 2, 3]
    assert [wave.index for wave in ordered(waves, Order.DESCENDING)] == [1, 3, 0, 2]
    assert ordered(waves, Order.SHUFFLED, 7) == ordered(waves, Order.SHUFFLED, 7)
    assert len({tuple(wave.index for wave in ordered(waves, Order.SHUFFLED, seed)) for seed in range(20)}) > 5


def run(name: str, law: str, **options: object) -> Backtest:
    return backtest(name, TRACES[name], LAWS[law], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TRACES)
def test_in_recorded_order_no_law_is_under_on_the_shipped_traces(name: str, law: str) -> None:
    assert run(name, law).score.under == 0


@pytest.mark.parametrize(
    ("name", "law", "median_percent"),
    [
        ("dense", "warm", "297.2"),
        ("moe", "warm", "332.0"),
        ("gdn_moe", "warm", "346.2"),
        ("dense", "packed", "589.4"),
        ("dense", "logical", "584.2"),
    ],
)
def test_recorded_baselines_of_the_shipped_traces(name: str, law: str, median_percent: str) -> None:
    median = run(name, law, skip=3).score.over_median

    assert median is not None
    assert f"{float(100 * median):.1f}" == median_percent


@pytest.mark.parametrize("law", ["packed", "warm"])
def test_replayed_from_the_largest_down_the_rate_laws_are_under_as_the_spec_says_they_may_be(law: str) -> None:
    """Not promised: waves smaller than all evidence, because a rate through the origin has no fixed cost."""
    under = [run(name, law, order=Order.DESCENDING).score.under for name in TRACES]

    assert all(1 <= count <= 8 for count in under)


def test_json_has_the_agreed_names_and_is_json() -> None:
    document = json.loads(json.dumps(run("dense", "warm").to_json()))

    assert document["trace"] == "dense" and document["law"] == "warm" and document["safety"] == "11/10"
    assert {"scored", "under", "over_min", "over_median", "over_p95", "over_max", "over_gib_median"} <= set(document)
    assert document["scored"] == 54
