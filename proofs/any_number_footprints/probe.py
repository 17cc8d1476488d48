"""What INV-18 needs of a narrower wave under the frontier law: its share of everything, not of rows alone."""

from __future__ import annotations

from pricing.kernel.frontier import scaled_bytes
from proofs.frontier.theorem import a_bound, a_wave
from proofs.solver.proof import Given, refuted
from proofs.solver.symbolic import both


@refuted("INV-18")
def a_bound_falls_no_faster_than_packed_rows_alone(t: Given) -> None:
    """False: logical rows that the anchor lacks are charged, and a wave without them is not."""
    bound, (rows, logical, segments), fewer = a_bound(t), a_wave(t), t.integer("fewer", 1)
    t.assume(both(fewer <= rows, segments == 0))
    part = scaled_bytes(bound, fewer, 0, segments)
    t.prove(part * rows >= scaled_bytes(bound, rows, logical, segments) * fewer)
