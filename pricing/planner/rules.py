"""The rules of a decision: from figures to learned, trusted, fits, may probe, verdict. Written once, here.

The planner decides by them and replay decides by them again (`pricing.records.replay`), so a record replays to what the
planner said because both ask the same functions. Pure: numbers in, an answer out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from pricing.kernel.liveness import stands_against
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import TRUST_GROWTH
from pricing.planner.budget import fits


class Verdict(StrEnum):
    """What is to be done with the next items."""

    RUN = "run"
    COLD_START = "cold_start"
    """Nothing was learned of this signature: the narrowest wave runs alone."""
    PROBE = "probe"
    """Only what was learned stands in the way, and that is too little to refuse by: it runs once, alone."""
    SPLIT = "split"
    REFUSE = "refuse"
    EMPTY = "empty"
    """This rank has nothing left; it takes part in the wave with nothing to run."""


def is_learned(profile: Profile, *, active_groups: int) -> bool:
    """Whether anything was learned of a signature; true also where there is nothing to run.

    active_groups: groups (or distinct grad modes) with an active request; only 0 or not matters.
    """
    return not profile.is_empty or active_groups == 0


def is_trusted(packed_rows: int, profile: Profile, *, learned: bool) -> bool:
    """Whether a wave of `packed_rows` is within trust growth: at most 8 times the most rows ever seen. Where nothing
    was learned nothing is, but a wave without rows."""
    return packed_rows == 0 or (learned and packed_rows <= TRUST_GROWTH * profile.largest_packed_rows)


def is_feasible(width: int, *, required_bytes: int, available_bytes: int, learned: bool, trusted: bool) -> bool:
    """Whether a wave of `width` items may run whole. Where nothing was learned only the narrowest may: a cold start."""
    return fits(required_bytes, available_bytes) and (trusted if learned else width == 1)


def is_young(profile: Profile, *, learned: bool, over_budget: bool) -> bool:
    """Whether a profile is too young to refuse by: one tiny first wave must never make every later one unrunnable.

    Over the budget that is until the first complete reading after the seed. Where only trust growth is in the way it is
    always: nothing else could teach the profile more rows.
    """
    return learned and not (over_budget and profile.complete_readings > 1)


def is_open_to_a_probe(
    profile: Profile, *, learned: bool, over_budget: bool, forecast_fits: bool, survives: bool
) -> bool:
    """Whether the narrowest wave, which does not fit, may be tried nevertheless.

    A wave that its own forecast keeps out is one only where the run survives that it runs out of memory: nothing says
    that it could fit, but a forecast may err. Otherwise the profile must be too young to refuse by.

    forecast_fits: whether what was forecast fits; true where nothing was. survives: whether the call takes back what a
    wave did that ran out of memory in the caller's phase (`train_batch`).
    """
    return survives if not forecast_fits else is_young(profile, learned=learned, over_budget=over_budget)


def may_probe(*, had_probe: bool, over_budget: bool, cold_required_bytes: int, available_bytes: int) -> bool:
    """Whether a wave that a young profile refuses may run once, alone, over its price.

    had_probe: over the budget a signature is probed once; beyond trust growth alone as often as a wave is.
    cold_required_bytes: the price with nothing learned (outputs, floor and cold transient), which must fit.
    """
    return not (over_budget and had_probe) and fits(cold_required_bytes, available_bytes)


def earns_probe(
    *, lost: bool, required_bytes: int, witnessed_bytes: int | None, cold_required_bytes: int, available_bytes: int
) -> bool:
    """Whether a wave that its price refuses may run once, alone, because complete readings stand against that price.

    witnessed_bytes: what these say of the wave (`pricing.kernel.liveness`), which must fit, as the cold price must.
    lost: a wave of the signature ran out of memory in this process.
    """
    return (
        not lost
        and stands_against(required_bytes, witnessed_bytes)
        and fits(probe_bytes(cold_required_bytes, witnessed_bytes), available_bytes)
    )


def probe_bytes(cold_required_bytes: int, witnessed_bytes: int | None) -> int:
    """What is held against the budget for a probe over its price: what it would be cold, and what witnesses say."""
    return max(cold_required_bytes, witnessed_bytes or 0)


def verdict_of(*, feasible: bool, learned: bool, split_fits: bool, probes: Callable[[], bool]) -> Verdict:
    """One rank's verdict on a wave: whole, else the split whose rung fits, else a probe, else refused.

    probes: asked only where nothing before it answers.
    """
    if feasible:
        return Verdict.RUN if learned else Verdict.COLD_START
    if split_fits:
        return Verdict.SPLIT
    return Verdict.PROBE if probes() else Verdict.REFUSE


def held_bytes(verdict: Verdict, price_required_bytes: int, split_cost_bytes: int | None) -> int:
    """What is held against the budget: the price, or the cost of the rung that runs for a split."""
    if verdict is Verdict.SPLIT and split_cost_bytes is not None:
        return split_cost_bytes
    return price_required_bytes
