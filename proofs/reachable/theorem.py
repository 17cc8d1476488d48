"""The inductive invariant: `Profile()` is reachable, and `observe` leads from reachable profiles to reachable ones.

`observe` builds its result by the shipped constructor, which runs the shipped `require_reachable`. That this raises on
no path is an obligation of every theorem that observes; here it is the theorem.
"""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.profile import Evidence, Profile, broken_invariant, observe
from pricing.kernel.quantities import MAX_QUANTITY
from pricing.kernel.reading import Reading, ReadingKind
from proofs.lemmas import tell_sharing
from proofs.solver.proof import Given, theorem

KINDS = [(kind, grads, closes) for kind in ReadingKind for grads in (True, False) for closes in (True, False)]


@theorem("reachable")
def the_empty_profile_is_reachable(t: Given) -> None:
    t.prove(broken_invariant(Profile()) is None)


@theorem("reachable", slow=True)
def observing_keeps_profiles_reachable(t: Given) -> None:
    profile, reading = t.profile(), t.reading()
    tell_sharing(t, profile, reading)
    t.holds(contracts.profile_stays_reachable, profile, reading)


@theorem("reachable", limit=MAX_QUANTITY, slow=True)
def observing_never_raises_within_63_bits(t: Given) -> None:
    """With the guards' upper bound in force: no valid reading of a valid profile is refused, short of 2**63 - 1
    complete readings."""
    observe_within_63_bits(t, t.profile(), t.reading())


@theorem("reachable", limit=MAX_QUANTITY, slow=True)
def observing_a_peak_never_raises_within_63_bits(t: Given) -> None:
    """The quick part: no retained bytes."""
    observe_within_63_bits(t, t.profile(retained=False), t.reading(retained=False))


def observe_within_63_bits(t: Given, profile: Profile, reading: Reading) -> None:
    t.assume(profile.complete_readings < MAX_QUANTITY)
    tell_sharing(t, profile, reading)
    t.prove(observe(profile, reading).largest_packed_rows >= reading.packed_rows, "and it is observed")


@theorem("reachable", slow=True)
def of_a_reading_s_kind_only_its_completeness_counts(t: Given) -> None:
    """Two readings alike but for kind, grads and closing teach the same where both are complete or both are not. So the
    other theorems need one complete and one incomplete kind."""
    profile, kind = t.profile(retained=False), t.choose(*KINDS)
    reading = t.reading(kind=kind, retained=False)
    whole = (ReadingKind.WHOLE_WAVE, True, False) if reading.is_complete else (ReadingKind.SPLIT_CHILD, True, False)
    twin = t.valid(
        lambda: Reading(
            packed_rows=reading.packed_rows,
            logical_rows=reading.logical_rows,
            grad_segments=reading.grad_segments,
            output_bytes=reading.output_bytes,
            peak_delta_bytes=reading.peak_delta_bytes,
            kind=whole[0],
            grads=whole[1],
            closes_wave=whole[2],
        )
    )
    tell_sharing(t, profile, reading)
    t.prove(contracts.saw_the_whole_peak(reading) == reading.is_complete, "the table of kinds")
    one, other = observe(profile, reading), observe(profile, twin)
    t.prove(t.merged(rate_fields_are_equal, one, other))


def rate_fields_are_equal(one: Profile, other: Profile) -> bool:
    """Equal in all fields of the rate laws."""
    names = [name for name in Evidence.__slots__ if name != "frontier"]
    return all(getattr(one, name) == getattr(other, name) for name in names)
