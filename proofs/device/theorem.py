"""End to end: what is trusted of a device is the fields of one structure; all else about an admitted wave is proven.

For the rate laws. A `Device` is a relation between what runs and its true peak, restricted to one reading that it made
and one wave that it is asked to run. Its fields are the named assumptions of `spec/assumptions.md`; the theorem's
hypotheses are these and what the shipped code does. `probe.py` drops them one by one.

The history is of any length by induction: the reading is remembered by the profile after it (`inv08_coverage`), stays
remembered after any other, and the sharing seen never falls; the theorem starts from any reachable profile that
remembers it. Not promised, as `spec/assumptions.md` says: the seed's own one-time costs, and waves smaller than the
evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import Profile, observe
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


def a_device(t: Given, reading: Reading, wave: Wave, profile: Profile) -> Device:
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


def the_promise(t: Given, *, without: str = "", smaller: bool = False, beyond: bool = False) -> None:
    """What is promised, without one of the assumptions, or of waves outside the promise: for theorem and probes."""
    law = t.choose(PACKED, WARM)
    workload = t.workload(packed_priced=True)
    profile = t.profile(retained=False, warm=t.choose("pending", "fit"))
    reading = t.reading(complete=True, retained=False)
    wave = t.wave(workload=workload)
    budget = t.integer("budget", 0)
    t.assume(both(reading.packed_rows >= 1, wave.packed_rows >= 1))
    t.assume(is_remembered(profile, reading))
    if not smaller:
        t.assume(wave.packed_rows >= reading.packed_rows)
    if not beyond:
        sharing = profile.sharing
        t.assume(wave.logical_rows * sharing.packed_rows <= TRUST_GROWTH * sharing.logical_rows * wave.packed_rows)
    device = a_device(t, reading, wave, profile)
    for name, says in device.assumed.items():
        if name != without:
            t.assume(says)
    price = t.merged(evidence_bytes, wave, profile, law, t.safety())
    tell_rate(t, profile, reading, wave)
    t.assume(fits(price, budget))
    t.prove(device.peak_bytes <= price, "within its price")
    t.prove(device.peak_bytes <= budget, "and so within the budget that admitted it")


def tell_rate(t: Given, profile: Profile, reading: Reading, wave: Wave) -> None:
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
