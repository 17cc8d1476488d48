"""False statements that a reader might take for the laws, kept so that nobody relies on them again."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.quantities import DEFAULT_SAFETY, LOGICAL_ROW_BYTES, Safety, maximum, with_safety
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM
from proofs.solver.proof import Given, refuted

NO_MARGIN = Safety(numerator=1, denominator=1)


@refuted("INV-6")
def a_warm_price_is_at_least_the_warm_rate_times_the_warm_floor(t: Given) -> None:
    """False: for waves below the floor the all-readings fit may be the lower one. True is INV-6's form."""
    profile, wave = t.profile(retained=False, warm="fit"), t.wave(logical_rows=0, grad_segments=0)
    warm, floor_rows = profile.warm_bytes_per_row, profile.warm_packed_rows
    assert warm is not None and floor_rows is not None, "a warm fit has both"
    t.assume(wave.packed_rows >= 1)
    price = t.merged(evidence_bytes, wave, profile, WARM, NO_MARGIN)
    t.prove(price >= warm * maximum(floor_rows, wave.packed_rows))


@refuted("INV-11")
def retained_bytes_need_no_cap_by_required_bytes(t: Given) -> None:
    """False once a warm fit is there: R*P + 6144*L may exceed the warm price. Hence the minimum in `retained_bytes`."""
    profile, wave = t.profile(retained=True, warm="fit"), t.wave(workload=t.workload(packed_priced=True))
    retained = profile.retained_bytes_per_row
    assert retained is not None, "the profile retains"
    t.assume(wave.packed_rows >= 1)
    kept = retained * wave.packed_rows + LOGICAL_ROW_BYTES * wave.logical_rows
    held = with_safety(DEFAULT_SAFETY.numerator, DEFAULT_SAFETY.denominator, wave.output_bytes + kept)
    t.prove(held <= t.merged(evidence_bytes, wave, profile, WARM))


@refuted("INV-7")
def the_packed_law_never_prices_above_the_logical_law(t: Given) -> None:
    """False: the logical law has no charges. Near sharing 1 the old rule is the cheaper of the two."""
    profile, wave = t.profile(retained=False, warm="none"), t.wave(workload=t.workload(packed_priced=True))
    t.prove(t.merged(evidence_bytes, wave, profile, PACKED) <= t.merged(evidence_bytes, wave, profile, LOGICAL))
