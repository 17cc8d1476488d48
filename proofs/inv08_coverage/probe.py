"""Coverage is of readings after the seed, at the rows they ran: neither of the seed for ever, nor of other waves."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import observe
from pricing.kernel.quantities import Safety
from pricing.kernel.rate_laws import WARM
from proofs.inv08_coverage.theorem import wave_of
from proofs.solver.proof import Given, refuted

NO_MARGIN = Safety(numerator=1, denominator=1)


@refuted("INV-8")
def the_seed_stays_covered_by_warm_prices(t: Given) -> None:
    """False, and said first among what is not promised: the seed's one-time costs may lie above later warm prices."""
    profile, seed = t.profile(retained=False, warm="none"), t.reading("seed", complete=True, retained=False)
    later = t.reading("later", complete=True, retained=False)
    t.assume(profile.complete_readings == 0)
    t.assume(seed.packed_rows >= 1)
    after = observe(observe(profile, seed), later)
    price = t.merged(evidence_bytes, wave_of(t, seed), after, WARM, NO_MARGIN)
    t.prove(price >= seed.output_bytes + seed.compute_bytes)


@refuted("INV-8")
def a_reading_covers_smaller_waves_of_a_fixed_cost_too(t: Given) -> None:
    """False, and not promised: a smaller wave of the same compute lies above B*P, which goes through the origin."""
    profile, reading = t.profile(retained=False, warm="none"), t.reading(retained=False)
    smaller = t.wave(workload=t.workload(packed_priced=False), logical_rows=0, grad_segments=0)
    t.assume(smaller.packed_rows >= 1)
    t.assume(smaller.packed_rows <= reading.packed_rows)
    price = t.merged(evidence_bytes, smaller, observe(profile, reading), WARM, NO_MARGIN)
    t.prove(price >= reading.compute_bytes)


@refuted("INV-8")
def the_rate_is_exact(t: Given) -> None:
    """False: it is rounded up to a whole byte."""
    profile, reading = t.profile(retained=False, warm="none"), t.reading(retained=False)
    t.assume(reading.packed_rows >= 1)
    t.assume(profile.peak_bytes_per_row == 0)
    t.prove(observe(profile, reading).peak_bytes_per_row * reading.packed_rows == reading.compute_bytes)
