"""Without any one of the assumptions, and outside what is promised, an admitted wave may exceed its price."""

from __future__ import annotations

from proofs.device.theorem import COLD, COUNTER, HEAD, OUTPUTS, ROWS, SEGMENT, the_cold_promise, the_promise
from proofs.solver.proof import Given, refuted


@refuted("device")
def the_promise_needs_no_proportion_to_rows(t: Given) -> None:
    the_promise(t, without=ROWS)


@refuted("device")
def the_promise_needs_no_limit_on_the_head(t: Given) -> None:
    the_promise(t, without=HEAD)


@refuted("device")
def the_promise_needs_no_limit_on_segments(t: Given) -> None:
    the_promise(t, without=SEGMENT)


@refuted("device")
def the_promise_needs_no_trust_in_the_counter(t: Given) -> None:
    the_promise(t, without=COUNTER)


@refuted("device")
def the_promise_needs_no_account_of_outputs(t: Given) -> None:
    the_promise(t, without=OUTPUTS)


@refuted("device")
def the_promise_holds_for_waves_smaller_than_the_evidence(t: Given) -> None:
    the_promise(t, smaller=True)


@refuted("device")
def the_promise_holds_beyond_eight_times_the_sharing_seen(t: Given) -> None:
    the_promise(t, beyond=True)


@refuted("device")
def the_promise_of_footprints_needs_no_proportion_to_rows(t: Given) -> None:
    the_promise(t, without=ROWS, of="footprint")


@refuted("device")
def the_promise_of_footprints_needs_no_trust_in_the_counter(t: Given) -> None:
    the_promise(t, without=COUNTER, of="footprint")


@refuted("device")
def a_first_footprint_needs_no_limit_over_what_is_allocated(t: Given) -> None:
    the_cold_promise(t, without=COLD)


@refuted("device")
def the_promise_of_footprints_needs_no_limit_on_the_head(t: Given) -> None:
    the_promise(t, without=HEAD, of="footprint")


@refuted("device")
def the_promise_of_footprints_needs_no_limit_on_segments(t: Given) -> None:
    the_promise(t, without=SEGMENT, of="footprint")


@refuted("device")
def the_promise_of_footprints_needs_no_account_of_outputs(t: Given) -> None:
    the_promise(t, without=OUTPUTS, of="footprint")


@refuted("device")
def the_promise_of_footprints_holds_for_waves_smaller_than_the_evidence(t: Given) -> None:
    the_promise(t, smaller=True, of="footprint")


@refuted("device")
def the_promise_of_footprints_holds_beyond_eight_times_the_sharing_seen(t: Given) -> None:
    the_promise(t, beyond=True, of="footprint")
