"""Order matters before the seed, on purpose: the first complete reading is the one that pays one-time costs."""

from __future__ import annotations

from pricing.kernel.profile import observe
from proofs.solver.proof import Given, refuted


@refuted("INV-10")
def readings_may_swap_before_the_seed_too(t: Given) -> None:
    profile = t.profile(retained=False, warm="none")
    first, second = (t.reading(name, complete=True, retained=False) for name in ("first", "second"))
    t.assume(profile.complete_readings == 0)
    t.assume(first.packed_rows >= 1)
    t.assume(second.packed_rows >= 1)
    one, other = observe(observe(profile, first), second), observe(observe(profile, second), first)
    assert one.warm_bytes_per_row is not None and other.warm_bytes_per_row is not None, "both saw two"
    t.prove(one.warm_bytes_per_row == other.warm_bytes_per_row)
