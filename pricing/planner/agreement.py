"""Agreement: each rank judges its own items against its own budget, and all of them run, or refuse, one wave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pricing.planner.judge import Judge
from pricing.planner.quorum import FAILED_STATUS, FAILED_WIDTH, REFUSED_STATUS, PeerPlanningError, Quorum
from pricing.planner.rules import Verdict
from pricing.planner.wave_plan import WavePlan


def agree(make_judge: Callable[[], Judge], quorum: Quorum) -> WavePlan:
    """The wave that all ranks run, by the collectives that `pricing.planner.quorum` lists.

    Raises `PeerPlanningError` where another rank's planning raised, and this rank's own error after telling the others.
    """
    try:
        judge = make_judge()
        proposed = judge.proposed_width()
    except Exception:
        quorum.min(FAILED_WIDTH)
        raise
    agreed = quorum.min(proposed)
    if agreed == FAILED_WIDTH:
        raise PeerPlanningError("planning raised on another rank: no rank runs this wave")
    plan = _wide(judge, agreed, quorum) if agreed > 0 else _agree_on_narrowest(judge, quorum)
    if quorum.all_fit(plan.runs) or not plan.runs:
        return plan
    return replace(plan, verdict=Verdict.REFUSE, refused_elsewhere=True)


def _wide(judge: Judge, agreed: int, quorum: Quorum) -> WavePlan:
    """The wave of the agreed width. If pricing it raises here, the others learn from the vote that it does not run."""
    try:
        return judge.wide(agreed)
    except Exception:
        quorum.all_fit(False)
        raise


def _agree_on_narrowest(judge: Judge, quorum: Quorum) -> WavePlan:
    """Some rank cannot run its narrowest wave whole: every rank runs one item, and all learn how often it is cut."""
    try:
        plan = judge.narrow()
        status = plan.subforwards if plan.runs else REFUSED_STATUS
    except Exception:
        quorum.max(FAILED_STATUS)
        raise
    agreed = quorum.max(status)
    if agreed == FAILED_STATUS:
        raise PeerPlanningError("planning raised on another rank: no rank runs this wave")
    return plan if agreed == REFUSED_STATUS else replace(plan, subforwards=agreed)
