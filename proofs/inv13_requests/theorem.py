"""INV-13. Lengths are unbounded integers; batches are small (up to two groups of two requests).

Any number of requests follows from structure, which `structure.py` checks: `workload_of` and `signature_of` read a
group's requests through `RequestGroup.active` alone, and that is a filter.
"""

from __future__ import annotations

from typing import Any

from pricing import contracts
from pricing.kernel.law import ineligibility
from pricing.kernel.quantities import SHORT_REQUEST_ROWS
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode, RequestGroup, RequestSpec, Workload
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both

MODES = (
    ONE_LAYER_FULL,
    NO_RECOMPUTE,
    RecomputeMode(granularity="full", method="uniform", num_layers=2),
    RecomputeMode(granularity="full", method="uniform", num_layers=1, training=False),
)


def single_target_request(t: Given, name: str) -> RequestSpec:
    """A request of any length, shaped (N,) or (1, N), that asks for one label a token."""
    rows = t.integer(f"{name}.rows")
    shape = t.choose((rows,), (1, rows))
    return t.valid(lambda: RequestSpec(input_shape=shape, target_shape=shape))


def inactive_request(t: Given, name: str) -> RequestSpec:
    rows = t.integer(f"{name}.rows")
    return t.valid(lambda: RequestSpec(input_shape=(rows,)))


def logits_request(t: Given, name: str) -> RequestSpec:
    rows = t.integer(f"{name}.rows")
    return t.valid(lambda: RequestSpec(input_shape=(rows,), logits=True))


@theorem("INV-13")
def inactive_requests_of_any_length_change_neither_workload_nor_signature(t: Given) -> None:
    first = [single_target_request(t, "a"), t.choose(single_target_request, logits_request, inactive_request)(t, "b")]
    groups = [
        RequestGroup(requests=tuple(first), grads=True, adapter="r16"),
        RequestGroup(requests=(inactive_request(t, "c"),), grads=False),
    ]
    extra = [inactive_request(t, "x"), inactive_request(t, "y")]
    t.holds(contracts.inactive_requests_change_nothing, groups, extra, t.choose(*MODES), "tp1")


@theorem("INV-13")
def a_short_request_of_any_length_ends_packed_pricing_and_keeps_the_signature(t: Given) -> None:
    """`contracts.short_request_changes_eligibility_not_identity`, with its 64 rows counted in bytes of charge."""
    group = RequestGroup(requests=(single_target_request(t, "a"),), grads=True)
    other = RequestGroup(requests=(t.choose(single_target_request, inactive_request)(t, "b"),), grads=True)
    short, profile = single_target_request(t, "short"), t.profile(retained=False, warm="none")
    contract = contracts.short_request_changes_eligibility_not_identity
    t.holds(contract, [group, other], short, t.choose(*MODES), profile, "tp1")


@theorem("INV-13")
def of_a_profile_only_its_existence_decides_eligibility(t: Given) -> None:
    workload = any_workload(t)
    first, second = t.profile("first", retained=False, warm="none"), t.profile("second", retained=True, warm="fit")
    t.holds(contracts.eligibility_asks_facts_only, workload, first, second)


@theorem("INV-13")
def a_wave_is_packed_priced_exactly_where_every_condition_of_eligibility_holds(t: Given) -> None:
    """The shipped `ineligibility`, which other theorems replace by one free bit: empty exactly under section 3."""
    workload, profile = any_workload(t), t.profile(retained=False, warm="none")
    shortest = workload.shortest_single_target_rows
    facts = (
        workload.recompute == ONE_LAYER_FULL
        and workload.grad_modes == (True,)
        and set(workload.request_mixes) <= {"target:single", "inactive"}
    )
    long_enough = shortest is None or shortest >= SHORT_REQUEST_ROWS
    packed_priced = both(facts, profile.largest_packed_rows >= 1, long_enough)
    t.prove(t.merged(_is_eligible, profile, workload) == packed_priced)


def _is_eligible(profile: Any, workload: Workload) -> bool:
    return not ineligibility(profile, workload)


def any_workload(t: Given) -> Workload:
    """Every combination of the facts, the shortest request's rows being any integer."""
    shortest = t.choose(None, t.integer("shortest"))
    grad_modes = t.choose((), (True,), (False,), (False, True))
    mixes = t.choose((), ("target:single",), ("logits", "target:single"), ("target:(4,)",))
    mode = t.choose(*MODES)
    return t.valid(
        lambda: Workload(
            grad_modes=grad_modes, request_mixes=mixes, recompute=mode, shortest_single_target_rows=shortest
        )
    )
