"""INV-20: the witness that is kept says no more a row than either, and an earned probe is held at half its price."""

from __future__ import annotations

from pricing.kernel.bands import Anchor, lower_anchor
from pricing.kernel.liveness import AGAINST, stands_against
from pricing.planner.rules import earns_probe, probe_bytes
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both


def an_anchor(t: Given, name: str) -> Anchor:
    fields = {field: t.integer(f"{name}.{field}", 1) for field in ("compute_bytes", "packed_rows", "logical_rows")}
    return Anchor(grad_segments=t.integer(f"{name}.grad_segments", 0), **fields)


@theorem("INV-20", merging=(lower_anchor,))
def the_kept_witness_says_no_more_a_row_than_either(t: Given) -> None:
    one, other = an_anchor(t, "one"), an_anchor(t, "other")
    kept = lower_anchor(one, other)
    for told in (one, other):
        t.prove(kept.compute_bytes * told.packed_rows <= told.compute_bytes * kept.packed_rows)


@theorem("INV-20", merging=(earns_probe, probe_bytes, stands_against))
def an_earned_probe_is_held_at_no_more_than_half_its_price(t: Given) -> None:
    """Whatever the price and the device: what witnesses say fits, and is at most half of the price that refused."""
    required, witnessed, cold = t.integer("required", 0), t.integer("witnessed", 0), t.integer("cold", 0)
    available = t.integer("available")
    lost = t.choose(True, False)
    earned = earns_probe(
        lost=lost,
        required_bytes=required,
        witnessed_bytes=witnessed,
        cold_required_bytes=cold,
        available_bytes=available,
    )
    if lost:
        t.prove(not earned)
        return
    t.assume(earned)
    t.prove(both(AGAINST * witnessed <= required, witnessed <= available, cold <= available))


@theorem("INV-20", merging=(earns_probe, probe_bytes, stands_against))
def a_device_of_twice_the_witnessed_price_refuses_nothing_for_its_price(t: Given) -> None:
    """Liveness: a wave that does not fit there has a price at which it earns a probe."""
    required, witnessed, cold = t.integer("required", 0), t.integer("witnessed", 0), t.integer("cold", 0)
    available = t.integer("available", 0)
    t.assume(both(available >= AGAINST * witnessed, cold <= available, required > available))
    t.prove(
        earns_probe(
            lost=False,
            required_bytes=required,
            witnessed_bytes=witnessed,
            cold_required_bytes=cold,
            available_bytes=available,
        )
    )
