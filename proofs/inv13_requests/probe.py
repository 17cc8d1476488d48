"""Activity, shortness and labels do matter where they should."""

from __future__ import annotations

from pricing.kernel.law import ineligibility
from pricing.kernel.requests import ONE_LAYER_FULL, RequestGroup, workload_of
from proofs.inv13_requests.theorem import single_target_request
from proofs.solver.proof import Given, refuted


@refuted("INV-13")
def a_request_of_64_rows_is_short(t: Given) -> None:
    request, profile = single_target_request(t, "a"), t.profile(retained=False, warm="none")
    t.assume(request.logical_rows == 64)
    t.assume(profile.largest_packed_rows >= 1)
    group = RequestGroup(requests=(request,), grads=True)
    t.prove(bool(ineligibility(profile, workload_of([group], ONE_LAYER_FULL))))


@refuted("INV-13")
def active_requests_change_nothing_either(t: Given) -> None:
    long, other = single_target_request(t, "a"), single_target_request(t, "b")
    one = workload_of([RequestGroup(requests=(long,), grads=True)], ONE_LAYER_FULL)
    two = workload_of([RequestGroup(requests=(long, other), grads=True)], ONE_LAYER_FULL)
    assert one.shortest_single_target_rows is not None and two.shortest_single_target_rows is not None, "both have one"
    t.prove(one.shortest_single_target_rows == two.shortest_single_target_rows)
