"""Without any one of the assumptions a wave may take more than the bound of a reading."""

from __future__ import annotations

from pricing.kernel.frontier import lifted
from proofs.device_frontier.theorem import (
    COUNTER,
    HEAD,
    OPAQUE,
    OUTPUTS,
    SCALE,
    SEGMENT,
    the_bound_promise,
    the_price_promise,
)
from proofs.solver.proof import Given, refuted

MERGING = (lifted,)


@refuted("device")
def the_frontier_promise_needs_no_scale(t: Given) -> None:
    the_bound_promise(t, without=SCALE)


@refuted("device")
def the_frontier_promise_needs_no_limit_on_the_head(t: Given) -> None:
    the_bound_promise(t, without=HEAD)


@refuted("device")
def the_frontier_promise_needs_no_limit_on_segments(t: Given) -> None:
    the_bound_promise(t, without=SEGMENT)


@refuted("device")
def the_frontier_promise_needs_no_trust_in_the_counter(t: Given) -> None:
    the_bound_promise(t, without=COUNTER)


@refuted("device", merging=MERGING, opaque=OPAQUE)
def the_frontier_promise_needs_no_account_of_outputs(t: Given) -> None:
    the_price_promise(t, without=OUTPUTS)


@refuted("device", merging=MERGING, opaque=OPAQUE)
def the_frontier_promise_of_footprints_needs_no_account_of_outputs(t: Given) -> None:
    the_price_promise(t, without=OUTPUTS, of="footprint")
