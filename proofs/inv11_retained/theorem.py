"""INV-11 on all integers."""

from __future__ import annotations

from pricing import contracts
from proofs.lemmas import MONOTONE
from proofs.solver.proof import Given, theorem


@theorem("INV-11", lemmas=MONOTONE)
def retained_bytes_are_never_above_required_bytes(t: Given) -> None:
    t.holds(contracts.retained_is_never_above_required, t.wave(), t.profile(), t.law(), t.safety())


@theorem("INV-11", lemmas=MONOTONE)
def retained_bytes_are_required_bytes_outside_either_window(t: Given) -> None:
    t.holds(contracts.retained_is_required_outside_the_windows, t.wave(), t.profile(), t.law(), t.safety())


@theorem("INV-11", lemmas=MONOTONE)
def retained_bytes_are_the_stated_formula_inside_both_windows(t: Given) -> None:
    t.holds(contracts.retained_is_the_formula_inside_the_windows, t.wave(), t.profile(), t.law(), t.safety())
