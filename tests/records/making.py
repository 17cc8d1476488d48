"""Random decisions and their records: priced waves under every law, and plans of small random batches."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st

from pricing import Profile, Reading, RequestSpec, Safety, Signature
from pricing.kernel.laws import LAWS
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL
from pricing.planner.budget import Budget
from pricing.planner.plan import Batch, PlanRequest, Setting, WavePlan, plan_wave
from pricing.records.record import DecisionRecord
from pricing.records.recorder import Handoff, Recorder, record_of_price
from pricing.testing import reachable_profiles, readings, safeties, waves_and_profiles

SOME_RECORDS = settings(max_examples=10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 100)
"""10,000 random records in a deep run, some in every run."""

TOKEN = 987_654_000
"""Tokens of random batches begin here, so that one in a record would be found."""


def same_profiles(profiles: list[Profile]) -> Callable[[Signature], Profile]:
    """A profile for every signature: which of a few, its digest says."""
    return lambda signature: profiles[int(signature.digest, 16) % len(profiles)]


def laws() -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(LAWS))


@st.composite
def priced_records(draw: st.DrawFn) -> DecisionRecord:
    """A wave priced by itself, under any law, against a budget near its price."""
    wave, profile = draw(waves_and_profiles())
    safety = draw(safeties())
    draft = record_of_price(wave, profile, available_bytes=0, law=LAWS[draw(laws())], safety=safety)
    available = draft.required_bytes + draw(st.sampled_from([-1, 0, 1, 1 << 30, -draft.required_bytes - 1]))
    return record_of_price(
        wave,
        profile,
        available_bytes=available,
        law=LAWS[draft.law],
        safety=safety,
        name=draw(st.text(max_size=8)),
        index=draw(st.integers(0, 1 << 40)),
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A few items of a few requests on shared prompts, around the 64-row gate, some inactive or without gradients."""
    prompts = draw(st.lists(st.integers(1, 90), min_size=1, max_size=2))
    items = []
    for item in range(draw(st.integers(1, 5))):
        requests = []
        for request in range(draw(st.integers(1, 3))):
            prompt = draw(st.sampled_from(prompts))
            length = prompt + draw(st.sampled_from([0, 1, 20, 64]))
            tokens = [TOKEN] * prompt + [TOKEN + 1 + item * 100 + request] * (length - prompt)
            target = draw(st.sampled_from([(length,), (length,), (length,), (length, 4), None]))
            requests.append(
                PlanRequest(
                    tokens=tokens,
                    spec=RequestSpec(input_shape=(length,), target_shape=target),
                    slot=draw(st.sampled_from(["", "", "b"])),
                    grads=draw(st.sampled_from([True, True, True, False])),
                    output_bytes=draw(st.sampled_from([0, 4 * length])),
                )
            )
        items.append(requests)
    return Batch(items)


@st.composite
def plans(draw: st.DrawFn) -> tuple[WavePlan, Batch]:
    """A plan of a random batch, against budgets that reach every verdict."""
    batch = draw(batches())
    setting = Setting(
        recompute=draw(st.sampled_from([ONE_LAYER_FULL, ONE_LAYER_FULL, NO_RECOMPUTE])),
        row_multiple=draw(st.sampled_from([1, 8])),
        segment_state_bytes=draw(st.sampled_from([0, 4_292_608])),
        floor_bytes=lambda shape, cold: 100 * shape.packed_rows + (1 << 20 if cold else 0),
    )
    small = st.builds(
        Reading,
        packed_rows=st.integers(1, 300),
        logical_rows=st.integers(1, 900),
        grad_segments=st.integers(0, 9),
        output_bytes=st.just(0),
        peak_delta_bytes=st.integers(0, 1 << 27),
        retained_bytes=st.one_of(st.none(), st.integers(0, 1 << 26)),
    )
    taught = st.lists(small, min_size=1, max_size=4).map(_learned)
    known = draw(st.lists(st.one_of(taught, reachable_profiles(3), st.just(Profile())), min_size=1, max_size=2))
    law, safety = LAWS[draw(laws())], draw(safeties())
    start = draw(st.integers(0, len(batch)))

    def plan(available_bytes: int) -> WavePlan:
        return plan_wave(
            batch,
            start=start,
            profiles=same_profiles(known),
            available_bytes=available_bytes,
            setting=setting,
            law=law,
            safety=safety,
        )

    narrow = plan(-1).required_bytes
    share = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 40]))
    return plan(narrow * share // 4 - draw(st.integers(0, 1))), batch


@st.composite
def planned_records(draw: st.DrawFn) -> DecisionRecord:
    """The record of a random plan, at any stage of its life."""
    plan, batch = draw(plans())
    recorder = Recorder(name="rank0")
    asked = batch if draw(st.booleans()) else None
    budget = Budget(
        free_bytes=draw(st.integers(-5, 1 << 36)), reserve_bytes=draw(st.integers(0, 1 << 33)), reusable_cache_bytes=7
    )
    if not plan.runs:
        recorder.refused(plan, batch=asked, budget=budget)
    else:
        ticket = recorder.admitted(plan, batch=asked, budget=budget, handoff=Handoff(budget=budget))
        match draw(st.sampled_from(["admitted", "observed", "abandoned", "out of memory"])):
            case "observed":
                recorder.observed(ticket, draw(readings()))
            case "abandoned":
                recorder.abandoned(ticket, note="broke off")
            case "out of memory":
                recorder.out_of_memory(ticket, requested_bytes=1 << 26, budget_after=budget)
    assert recorder.failures == 0, recorder.last_failure
    assert recorder.last_record is not None
    return recorder.last_record


def records() -> st.SearchStrategy[DecisionRecord]:
    return st.one_of(priced_records(), planned_records())


def _learned(history: list[Reading]) -> Profile:
    from tests.making import learned

    return learned(history)


def other_safety(safety: Safety) -> Safety:
    """A safety factor that is not this one."""
    return Safety(numerator=3, denominator=2) if safety != Safety(numerator=3, denominator=2) else Safety.parse(2)
