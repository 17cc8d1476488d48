"""The peak of a wave with few labels says too little of one with many, and so does a chunk of the rows with labels."""

from __future__ import annotations

from pricing.kernel.head_rows import chunk_rows, lacking_bytes
from proofs.solver.proof import Given, refuted


@refuted("head")
def a_waves_own_peak_covers_whatever_rows_have_labels(t: Given) -> None:
    """False: without the addition a pass over one row stands for a pass over a chunk."""
    rows, chunk, each = t.integer("rows", 0), t.integer("chunk", 1), t.integer("each", 0)
    projected, others = t.integer("projected_rows", 0), t.integer("other_projected_rows", 0)
    t.assume(projected <= rows)
    t.assume(others <= rows)
    t.prove(each * chunk_rows(projected, chunk) >= each * chunk_rows(others, chunk))


@refuted("head")
def rows_with_labels_that_grow_with_the_rows_need_no_addition(t: Given) -> None:
    """False: the rate of a pass over few of many rows, at as many rows, is under a pass over all of them."""
    rows, chunk, charge = t.integer("rows", 1), t.integer("chunk", 1), t.integer("charge", 1)
    projected = t.integer("projected_rows", 0)
    t.assume(projected <= rows)
    t.prove(lacking_bytes(chunk_rows(rows, chunk), chunk_rows(projected, chunk), charge, 0, 1) == 0)


@refuted("head")
def what_lacks_may_be_taken_at_a_charge_under_what_a_logit_takes(t: Given) -> None:
    """False: the charge must be the most that a workspace takes a logit."""
    rows, chunk = t.integer("rows", 0), t.integer("chunk", 1)
    projected, charge, each = t.integer("projected_rows", 0), t.integer("charge", 0), t.integer("each", 0)
    t.assume(projected <= rows)
    whole, mine = chunk_rows(rows, chunk), chunk_rows(projected, chunk)
    t.prove(each * mine + lacking_bytes(whole, mine, charge, 0, 1) >= each * whole)
