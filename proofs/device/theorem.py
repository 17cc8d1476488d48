"""End to end: what is trusted of a device is the fields of one structure; all else about an admitted wave is proven.

For the rate laws, of what is allocated and of footprints alike (`device_frontier` has the frontier law). A `Device` is
a relation between what runs and its true peak, restricted to one reading that it made and one wave that it is asked to
run. Its fields are the named assumptions of `spec/assumptions.md`; the theorem's hypotheses are these and what the
shipped code does. `probe.py` drops them one by one.

The history is of any length by induction: the reading is remembered by the profile after it (`inv08_coverage`), stays
remembered after any other, and the sharing seen never falls; the theorem starts from any reachable profile that
remembers it. Not promised, as `spec/assumptions.md` says: the seed's own one-time costs, and waves smaller than the
evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pricing.kernel.price import evidence_bytes, required_bytes
from pricing.kernel.profile import Evidence, Profile, observe, observe_footprint
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, TRUST_GROWTH
from pricing.kernel.rate_laws import PACKED, WARM
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave
from pricing.planner.budget import fits
from proofs.inv08_coverage.theorem import COVERING, is_remembered
from proofs.lemmas import a_product_never_falls_as_a_factor_grows, tell_sharing
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, implies

ROWS, HEAD, SEGMENT, COUNTER, OUTPUTS = "ROWS", "HEAD", "SEGMENT", "COUNTER", "OUTPUTS"
COLD = "COLD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What one device does with a reading's wave and with another, in bytes above the baseline.

    `assumed`: name of an assumption -> what it says of these. ROWS: within 8 times the sharing seen, what the model
    takes never grows faster than in proportion to packed rows (AFFINE without its fixed cost being negative). HEAD:
    the head and the caller take at most 6,144 B a logical row. SEGMENT: states take at most G a segment. COUNTER: a
    complete reading is at least what the model took. OUTPUTS: the outputs take what the wave says.
    """

    peak_bytes: int
    assumed: Mapping[str, bool]


def a_device(t: Given, reading: Reading, wave: Wave, profile: Evidence) -> Device:
    """Any device, by the parts of its peaks. Nothing is assumed of it yet."""
    model_then, model_now = t.integer("model.then", 0), t.integer("model.now", 0)
    head, states, outputs = t.integer("head.now", 0), t.integer("states.now", 0), t.integer("outputs.now", 0)
    within = wave.logical_rows * profile.sharing.packed_rows <= (
        TRUST_GROWTH * profile.sharing.logical_rows * wave.packed_rows
    )
    no_smaller = wave.packed_rows >= reading.packed_rows
    return Device(
        peak_bytes=outputs + model_now + head + states,
        assumed={
            ROWS: implies(both(within, no_smaller), model_now * reading.packed_rows <= model_then * wave.packed_rows),
            HEAD: head <= LOGICAL_ROW_BYTES * wave.logical_rows,
            SEGMENT: states <= wave.grad_segments * wave.segment_state_bytes,
            COUNTER: model_then <= reading.compute_bytes,
            OUTPUTS: outputs <= wave.output_bytes,
        },
    )


def the_promise(
    t: Given, *, without: str = "", smaller: bool = False, beyond: bool = False, of: str = "allocated"
) -> None:
    """What is promised, without one of the assumptions, or of waves outside the promise: for theorem and probes.

    of: "allocated", or "footprint": then the reading has one, the assumptions are about footprints (what the allocator
    takes of the device for a wave that starts clean), and what is admitted is held within the device's own bytes.
    """
    law = t.choose(PACKED, WARM)
    profile = t.profile(retained=False, warm="fit" if of == "footprint" else t.choose("pending", "fit"))
    read = t.reading(complete=True, retained=False, footprint=of == "footprint")
    evidence, reading = learned_of(t, profile, read, of)
    wave = t.wave(workload=t.workload(packed_priced=True))
    budget = t.integer("budget", 0)
    t.assume(both(reading.packed_rows >= 1, wave.packed_rows >= 1))
    t.assume(is_remembered(evidence, reading))
    if not smaller:
        t.assume(wave.packed_rows >= reading.packed_rows)
    if not beyond:
        sharing = evidence.sharing
        t.assume(wave.logical_rows * sharing.packed_rows <= TRUST_GROWTH * sharing.logical_rows * wave.packed_rows)
    device = a_device(t, reading, wave, evidence)
    for name, says in device.assumed.items():
        if name != without:
            t.assume(says)
    price = t.merged(evidence_bytes, wave, evidence, law, t.safety())
    tell_rate(t, evidence, reading, wave)
    t.assume(fits(price, budget))
    t.prove(device.peak_bytes <= price, "within its price")
    t.prove(device.peak_bytes <= budget, "and so within the budget that admitted it")


def learned_of(t: Given, profile: Profile, reading: Reading, of: str) -> tuple[Evidence, Reading]:
    """The evidence of one quantity, and the reading as it teaches that."""
    if of == "allocated":
        return profile, reading
    footprint, as_peak = t.footprints(retained=False, warm=t.choose("pending", "fit")), reading.of_footprint
    assert as_peak is not None, "the reading has a footprint"
    t.assume(footprint.largest_packed_rows >= 1)
    return footprint, as_peak


def tell_rate(t: Given, profile: Evidence, reading: Reading, wave: Wave) -> None:
    """The rates that the profile remembers, at this wave's rows."""
    warm = profile.warm_bytes_per_row
    assert warm is not None, "a remembered reading leaves a warm rate"
    rate, rows = reading.peak_bytes_per_row, wave.packed_rows
    never_falls = a_product_never_falls_as_a_factor_grows
    t.use(never_falls, rows, reading.compute_bytes, rate * reading.packed_rows)
    for learned in (profile.peak_bytes_per_row, warm):
        t.use(never_falls, rows, rate, learned)


@theorem("device", lemmas=COVERING)
def an_admitted_wave_within_reach_stays_within_its_price(t: Given) -> None:
    the_promise(t)


@theorem("device", lemmas=COVERING)
def the_promise_holds_from_the_reading_on(t: Given) -> None:
    """The induction's start, on what the shipped `observe` makes of a complete reading after the seed: it is
    remembered, and the sharing within which the promise holds never shrinks."""
    before, reading = t.profile(retained=False), t.reading(complete=True, retained=False)
    t.assume(both(before.complete_readings >= 1, reading.packed_rows >= 1))
    tell_sharing(t, before, reading)
    after = observe(before, reading)
    t.prove(is_remembered(after, reading), "remembered")
    one, other = after.sharing, before.sharing
    t.prove(one.logical_rows * other.packed_rows >= other.logical_rows * one.packed_rows, "no less reach")


@theorem("device", lemmas=COVERING)
def the_promise_holds_after_any_further_reading(t: Given) -> None:
    """The induction's step: whatever is read next, complete or not."""
    profile, reading, other = t.profile(retained=False), t.reading(retained=False), t.reading("other", retained=False)
    t.assume(both(reading.packed_rows >= 1, profile.complete_readings >= 1))
    t.assume(is_remembered(profile, reading))
    tell_sharing(t, profile, other)
    after = observe(profile, other)
    t.prove(is_remembered(after, reading), "still remembered")
    one, known = after.sharing, profile.sharing
    t.prove(one.logical_rows * known.packed_rows >= known.logical_rows * one.packed_rows, "no less reach")


# --- footprints ------------------------------------------------------------------------------------------------------


@theorem("device", lemmas=COVERING)
def the_footprint_of_an_admitted_wave_within_reach_stays_within_its_price(t: Given) -> None:
    the_promise(t, of="footprint")


@theorem("device", merging=(evidence_bytes,))
def what_is_admitted_is_held_against_the_price_of_either_quantity(t: Given) -> None:
    """So both promises hold of `required_bytes`, by which waves are admitted, once there are footprints."""
    learned, footprint = (
        t.profile(retained=False, warm="fit"),
        t.footprints(retained=False, warm=t.choose("pending", "fit")),
    )
    t.assume(footprint.largest_packed_rows >= 1)
    profile = t.valid(lambda: replace(learned, footprint=footprint))
    wave, law, safety = t.wave(), t.law(), t.safety()
    required = required_bytes(wave, profile, law, safety)
    for evidence in (profile, footprint):
        t.prove(evidence_bytes(wave, evidence, law, safety) <= required)


def the_cold_promise(t: Given, *, without: str = "") -> None:
    """Before the first footprint: COLD says that no footprint is above 4/3 of what the wave allocates."""
    profile, wave, law, safety = t.profile(retained=False, warm="fit"), t.wave(), t.law(), t.safety()
    peak, footprint, budget = t.integer("peak", 0), t.integer("footprint", 0), t.integer("budget", 0)
    t.assume(wave.packed_rows >= 1)
    t.assume(peak <= t.merged(evidence_bytes, wave, profile, law, safety))  # what the promise above gives
    if without != COLD:
        t.assume(3 * footprint <= 4 * peak)
    required = t.merged(required_bytes, wave, profile, law, safety)
    t.assume(fits(required, budget))
    t.prove(footprint <= budget)


@theorem("device", lemmas=COVERING)
def before_the_first_footprint_an_admitted_wave_stays_within_the_budget(t: Given) -> None:
    the_cold_promise(t)


@theorem("device", lemmas=COVERING)
def the_promise_of_footprints_holds_from_the_reading_on(t: Given) -> None:
    """The induction's start for footprints, on the shipped `observe_footprint`."""
    before, read = t.footprints(retained=False, warm="fit"), t.reading(complete=True, retained=False, footprint=True)
    reading = read.of_footprint
    assert reading is not None, "the reading has a footprint"
    t.assume(both(before.complete_readings >= 1, reading.packed_rows >= 1))
    tell_sharing(t, before, reading)
    after = observe_footprint(before, reading)
    t.prove(is_remembered(after, reading), "remembered")
    one, other = after.sharing, before.sharing
    t.prove(one.logical_rows * other.packed_rows >= other.logical_rows * one.packed_rows, "no less reach")


@theorem("device", lemmas=COVERING)
def the_promise_of_footprints_holds_after_any_further_reading(t: Given) -> None:
    """The induction's step for footprints: whatever is read next, also of a wave that ran out of memory."""
    known, read = t.footprints(retained=False), t.reading(retained=False, footprint=True)
    told = t.reading("other", retained=False, footprint=True)
    reading, other = read.of_footprint, told.of_footprint
    assert reading is not None and other is not None, "both have footprints"
    t.assume(both(reading.packed_rows >= 1, other.packed_rows >= 1, known.complete_readings >= 1))
    t.assume(is_remembered(known, reading))
    tell_sharing(t, known, other)
    after = observe_footprint(known, other)
    t.prove(is_remembered(after, reading), "still remembered")
    one, before = after.sharing, known.sharing
    t.prove(one.logical_rows * before.packed_rows >= before.logical_rows * one.packed_rows, "no less reach")
