"""Outputs that were not there at the peak: what the rows took is read without them, whenever they were made."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.torch_memory import Observation, PeakMeter, Role, meter_for
from adapters.wave_loop.wave import WaveStats
from pricing import LAWS, Profile, Reading, ReadingKind, Safety, Wave, Workload, observe, required_bytes
from pricing.kernel.requests import NO_RECOMPUTE
from tests.adapters.torch_memory.support import wave_of

ONE = Safety(numerator=1, denominator=1)
ROWS = 100
Phases = list[tuple[int, int]]
"""Of each output: the bytes that making it took and let go, and its own."""


LOGITS = Workload(grad_modes=(False,), request_mixes=("logits",), recompute=NO_RECOMPUTE)
"""Not packed-priced: no charge hides what a reading left out."""


def wave_with(output_bytes: int, rows: int = ROWS) -> Wave:
    return replace(wave_of(rows, output_bytes=output_bytes), workload=LOGITS)


def forward(meter: PeakMeter, phases: Phases, *, announces: bool = True) -> Observation:
    """A forward without gradients whose outputs are made one after the other."""
    output_bytes = sum(size for _, size in phases)
    interval = meter.open(wave_with(output_bytes), grads=False, role=Role.FORWARD)
    outputs = []
    for workspace_bytes, size_bytes in phases:
        workspace = torch.empty(workspace_bytes, dtype=torch.uint8)
        del workspace
        if announces:
            meter.before_outputs(size_bytes)
        outputs.append(torch.empty(size_bytes, dtype=torch.uint8))
    return interval.forward_done(outputs)


def taught(look: Observation, beyond_bytes: int = 0) -> Reading:
    stats = WaveStats(plan=None, budget=None, admission=None, beyond_bytes=beyond_bytes)  # type: ignore[arg-type]
    reading = stats.teaching(look).reading
    assert reading is not None
    return reading


def test_a_peak_before_the_outputs_is_the_rows_own(meter: PeakMeter) -> None:
    look = forward(meter, [(10_000, 4_000)])
    assert look.peak_delta_bytes == 10_000 and look.bare_bytes == 10_000
    assert look.reading is not None and look.reading.compute_bytes == 6_000  # what a law would make of it
    assert taught(look).compute_bytes == 10_000
    assert taught(look).footprint_bytes == 14_000
    assert taught(look, 300).compute_bytes == 10_300


def test_a_peak_with_the_outputs_teaches_itself(meter: PeakMeter) -> None:
    look = forward(meter, [(1_000, 4_000), (7_000, 0)])
    assert look.peak_delta_bytes == 11_000
    assert taught(look) == look.reading


def test_without_a_word_about_outputs_a_reading_teaches_itself(meter: PeakMeter) -> None:
    look = forward(meter, [(10_000, 4_000)], announces=False)
    assert look.bare_bytes == 0
    assert taught(look) == look.reading


phases = st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 50_000)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(phases)
def test_what_is_taught_is_the_highest_without_the_outputs_of_its_moment(drawn: Phases) -> None:
    with meter_for("cpu") as meter:
        assert taught(forward(meter, drawn)).compute_bytes == max(workspace for workspace, _ in drawn)


@settings(max_examples=60, deadline=None)
@given(phases, st.data())
def test_a_wave_of_the_same_rows_and_other_outputs_is_covered(drawn: Phases, data: st.DataObject) -> None:
    """As where requests share their rows, or do not."""
    with meter_for("cpu") as meter:
        other = [(workspace, data.draw(st.integers(0, 2 * size + 1))) for workspace, size in drawn]
        learned, wanted = (forward(meter, each) for each in (drawn, other))
    wave = wave_with(sum(size for _, size in other))
    for law in LAWS.values():
        profile = Profile()
        for _ in range(3):
            profile = observe(profile, taught(learned))
        assert required_bytes(wave, profile, law, ONE) >= wanted.peak_delta_bytes


def test_the_reading_as_it_is_does_not_cover_it(meter: PeakMeter) -> None:
    """The test above fails where all outputs are taken off."""
    look = forward(meter, [(10_000, 9_000)])
    assert look.reading is not None
    for law in LAWS.values():
        profile = observe(observe(Profile(), look.reading), look.reading)
        assert required_bytes(wave_with(1_000), profile, law) < 10_000


def test_copies_on_their_way_to_outputs_count_as_outputs(meter: PeakMeter) -> None:
    """Numbers of distinct rows are there only until requests get their own: no wave has more of them than outputs.
    What is more than the outputs is no such copy."""
    for copied_bytes, bare_bytes in ((2_500, 7_500), (9_000, 6_000)):
        interval = meter.open(wave_with(4_000), grads=False, role=Role.FORWARD)
        scratch = torch.empty(10_000, dtype=torch.uint8)
        meter.before_outputs(4_000, copied_bytes=copied_bytes)
        del scratch
        assert interval.forward_done([torch.empty(4_000, dtype=torch.uint8)]).bare_bytes == bare_bytes


def test_parts_and_their_whole_each_count_their_own_outputs(meter: PeakMeter) -> None:
    """A split's sub-forwards: of the whole, the first part's outputs are there while the second runs."""
    whole = meter.open(wave_with(6_000, 2 * ROWS), grads=False)
    kept, looks = [], []
    for workspace_bytes in (5_000, 8_000):
        part = meter.open(wave_with(3_000), grads=False, role=Role.SPLIT_CHILD)
        workspace = torch.empty(workspace_bytes, dtype=torch.uint8)
        del workspace
        meter.before_outputs(3_000)
        kept.append(torch.empty(3_000, dtype=torch.uint8))
        looks.append(part.forward_done(kept))
    after = whole.forward_done(kept)
    assert [look.bare_bytes for look in looks] == [5_000, 8_000]
    assert after.peak_delta_bytes == 11_000 and after.bare_bytes == 8_000
    whole.close()


def test_what_is_said_outside_a_forward_is_nobodys(meter: PeakMeter) -> None:
    meter.before_outputs(1_000)
    interval = meter.open(wave_with(1_000), grads=False)
    interval.forward_done([])
    workspace = torch.empty(9_000, dtype=torch.uint8)
    del workspace
    meter.before_outputs(1_000)
    assert interval.close().bare_bytes == 0


def test_a_wave_that_ran_out_of_memory_teaches_itself(meter: PeakMeter) -> None:
    interval = meter.open(wave_with(4_000), grads=False)
    workspace = torch.empty(10_000, dtype=torch.uint8)
    del workspace
    meter.before_outputs(4_000)
    look = interval.out_of_memory(available_bytes=9_000)
    assert look.reading is not None and look.reading.kind is ReadingKind.OUT_OF_MEMORY
    assert taught(look, 500) == look.reading
