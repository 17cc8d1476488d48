"""What an earned probe does not promise: that the witness was the lowest compute, or that its price was wrong."""

from __future__ import annotations

from pricing.kernel.bands import lower_anchor
from proofs.inv20_liveness.theorem import an_anchor
from proofs.solver.proof import Given, refuted


@refuted("INV-20", merging=(lower_anchor,))
def the_kept_witness_computed_no_more_than_either(t: Given) -> None:
    """False: it is the lower a row, and may be of more rows; so a smaller wave is witnessed at up to twice its own."""
    one, other = an_anchor(t, "one"), an_anchor(t, "other")
    t.prove(lower_anchor(one, other).compute_bytes <= one.compute_bytes)
