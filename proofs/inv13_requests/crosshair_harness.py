"""INV-13 by CrossHair, around the boundary of 64 rows.

`math.prod` makes CrossHair try lengths one by one, so they are few here; the theorem is about all lengths.
"""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.requests import ONE_LAYER_FULL, RequestGroup, RequestSpec, mix_key
from proofs.harness import profile_with


def inactive_requests_change_nothing(rows: int, inactive_rows: int, grads: bool, also_logits: bool) -> bool:
    """
    pre: 63 <= rows <= 65 and 0 <= inactive_rows <= 2
    post: _
    """
    request = RequestSpec(input_shape=(rows,), target_shape=(rows,), logits=also_logits)
    inactive = RequestSpec(input_shape=(inactive_rows,))
    return contracts.inactive_requests_change_nothing(
        [RequestGroup(requests=(request,), grads=grads)], [inactive], ONE_LAYER_FULL
    )


def a_short_request_changes_eligibility_not_identity(short_rows: int, nested: bool) -> bool:
    """
    pre: 61 <= short_rows <= 66
    post: _
    """
    request = RequestSpec(input_shape=(4_096,), target_shape=(4_096,))
    shape = (1, short_rows) if nested else (short_rows,)
    short = RequestSpec(input_shape=shape, target_shape=shape)
    return contracts.short_request_changes_eligibility_not_identity(
        [RequestGroup(requests=(request,), grads=True)], short, ONE_LAYER_FULL, profile_with(1)
    )


def a_request_is_active_exactly_if_it_asks_for_something(rows: int, logits: bool, hidden: bool, routes: bool) -> bool:
    """
    pre: 0 <= rows <= 10**6
    post: _
    """
    request = RequestSpec(input_shape=(rows,), logits=logits, hidden_states=hidden, routes=routes)
    return request.is_active == (logits or hidden or routes) == (mix_key(request) != "inactive")
