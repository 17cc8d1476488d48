"""`pricing plan`: the waves that a batch of requests would run as, as a table, as JSON, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NoReturn

import click

from pricing.cli.items_file import ITEMS_HELP, read_items
from pricing.cli.options import (
    BUDGET_BYTES,
    BYTES,
    COUNT,
    json_option,
    law_option,
    profile_option,
    safety_option,
    signature_option,
)
from pricing.cli.output import WIDE_COLUMNS, console, emit_json, price_parts_to_json, price_to_json, say
from pricing.cli.progress import Progress
from pricing.cli.wave_input import GRANULARITIES
from pricing.formats.profile_file import load_profiles
from pricing.kernel.law import Law
from pricing.kernel.made_gradients import is_together
from pricing.kernel.quantities import Safety
from pricing.kernel.requests import ONE_LAYER_FULL, RecomputeMode
from pricing.planner.batch import Batch
from pricing.planner.judge import Profiles
from pricing.planner.plan import BatchPlan, Verdict, WavePlan, WidthTried, plan_batch
from pricing.planner.setting import Setting
from pricing.planner.split import RungTried
from pricing.planner.tokens import default_tokens
from pricing.text import gib_text

if TYPE_CHECKING:
    from rich.console import Console

MOST_LAYER_DIGITS: Final = 9
"""No model has a billion layers; Python itself refuses to read thousands of digits."""

TOLD_REFUSALS: Final = 3
"""So many refusals are told in full, and so many in a row keep a line each; the rest is summed up."""
NARROW_LEAVES_OUT: Final = frozenset({"packed rows", "logical rows", "headroom"})

RUN_STYLES: Final = {
    Verdict.RUN: "",
    Verdict.COLD_START: "cyan",
    Verdict.PROBE: "yellow",
    Verdict.SPLIT: "magenta",
    Verdict.REFUSE: "bold red",
}


@click.command(
    "plan",
    help="Plan the waves that REQUESTS would run as within a budget, by a profile that stays as it is.\n\n"
    "Trust growth counts the planned waves as seen. Without a profile only the first wave can be planned: what "
    "follows depends on what that wave teaches.\n\nExit code: 1 where an item is refused, else 0.\n\nExample:\n\n"
    "\b\n    pricing plan requests.jsonl --profile profile.json --budget 60GiB --plot plan.png\n" + ITEMS_HELP,
)
@click.argument("requests_path", metavar="REQUESTS")
@click.option("--budget", "budget_bytes", type=BUDGET_BYTES, required=True, help='Memory for a wave, such as "60GiB".')
@profile_option(required=False)
@signature_option
@law_option
@safety_option
@click.option(
    "--topology", metavar="TEXT", help="Topology in the memory signature. Default: the profile file's, if one."
)
@click.option("--recompute", "recompute", metavar="MODE", default="full/uniform/1", help="Default: full/uniform/1.")
@click.option("--row-multiple", type=COUNT, default=1, help="Each group's rows are rounded up to it. Default: 1.")
@click.option("--segment-state-bytes", type=BYTES, default=0, help="State of a segment in one recurrent layer (G).")
@click.option("--floor-bytes", type=BYTES, default=0, help="Analytic lower bound on any wave's compute memory (F).")
@click.option("--no-share", is_flag=True, help="Nothing is shared: every request runs all of its own rows.")
@click.option("--cluster", is_flag=True, help="Reorder items so that those that share a prefix stand together.")
@click.option("--plot", metavar="FILE", help="Draw price and rows of each wave against the budget (.png, .svg, .pdf).")
@json_option
def command(
    requests_path: str,
    budget_bytes: int,
    profile_path: str | None,
    signature: str | None,
    law: Law,
    safety: Safety,
    topology: str | None,
    recompute: str,
    row_multiple: int,
    segment_state_bytes: int,
    floor_bytes: int,
    no_share: bool,
    cluster: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    profiles, file_topology = _read_profiles(profile_path, signature)
    setting = Setting(
        topology=topology if topology is not None else file_topology,
        recompute=parse_recompute(recompute),
        row_multiple=row_multiple,
        segment_state_bytes=segment_state_bytes,
        floor_bytes=lambda _shape, _cold: floor_bytes,
        floor_is_certain=True,
    )
    with Progress("reading") as reading:
        batch = Batch(read_items(requests_path, default_tokens(), reading.reached), share=not no_share)
    order: tuple[int, ...] | None = None
    if cluster:
        batch, order = batch.cluster()
    with Progress("planning", len(batch)) as planning:
        plan = plan_batch(
            batch,
            profiles=profiles,
            available_bytes=budget_bytes,
            setting=setting,
            law=law,
            safety=safety,
            progress=planning.reached,
        )
    if plot is not None:
        from pricing.cli.plan_plot import draw

        with Progress("drawing"):
            draw(plan, budget_bytes, plot)
    if as_json:
        emit_json(plan_to_json(plan, batch, budget_bytes, law, safety, order))
        _exit_by(plan)
    _print_plan(console(), plan, batch, budget_bytes, law, safety, cold=profile_path is None)
    if plot is not None:
        say(f"Picture: {plot}")
    _exit_by(plan)


def _exit_by(plan: BatchPlan) -> NoReturn:
    """A script must not take a plan that leaves items out for one that runs them all."""
    raise click.exceptions.Exit(1 if plan.refused else 0)


def parse_recompute(text: str) -> RecomputeMode:
    """ "granularity/method/layers", as `RecomputeMode` prints itself. Raises `click.UsageError`."""
    granularity, *rest = text.split("/")
    layers = rest[1] if len(rest) > 1 else None
    readable = layers is None or (layers.isascii() and layers.isdecimal() and len(layers) <= MOST_LAYER_DIGITS)
    if granularity not in GRANULARITIES or len(rest) > 2 or not readable:
        raise click.UsageError(
            f'--recompute: {text[:60]!r} is not a mode such as "{ONE_LAYER_FULL}", "selective" or "none"'
        )
    method = rest[0] if rest else None
    return RecomputeMode(granularity=granularity, method=method, num_layers=None if layers is None else int(layers))


def _read_profiles(path: str | None, signature: str | None) -> tuple[Profiles, str]:
    """The profiles to plan by, and the topology that their signatures name ("" if none or several)."""
    if path is None:
        if signature is not None:
            raise click.UsageError("--signature chooses from a profile file: give --profile too.")
        return {}, ""
    contents = load_profiles(path)
    of_rows = {
        known: profile for known, profile in contents.profiles.items() if known is None or not is_together(known)
    }
    if signature is not None or len(of_rows) == 1:
        chosen = contents.select(signature)
        return (lambda asked: chosen), ""
    named = {known: profile for known, profile in of_rows.items() if known is not None}
    topologies = {known.topology for known in named}
    return named, topologies.pop() if len(topologies) == 1 else ""


# --- for people ------------------------------------------------------------------------------------------------------


def _print_plan(
    spoken: Console, plan: BatchPlan, batch: Batch, budget_bytes: int, law: Law, safety: Safety, *, cold: bool
) -> None:
    from rich.table import Table

    ran = sum(wave.runs for wave in plan.waves)
    refused = f", {_count(len(plan.refused), 'item')} refused" if plan.refused else ""
    title = f"{_count(ran, 'wave')}{refused}, of {_count(len(batch), 'item')}, budget {gib_text(budget_bytes)}"
    table = Table(title=f"{title}, law {law.name}, safety {safety}", title_justify="left")
    narrow = spoken.width < WIDE_COLUMNS
    headings = ("wave", "items", "width", "packed rows", "logical rows", "sharing", "price", "headroom")
    shown = [not (narrow and heading in NARROW_LEAVES_OUT) for heading in headings]
    for heading in (heading for heading, is_shown in zip(headings, shown, strict=True) if is_shown):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("bound by", overflow="fold")  # the one column that may wrap: names of bands are long
    numbered = enumerate(plan.waves, start=1)
    for is_refused, run in groupby(numbered, key=lambda pair: pair[1].refusal is not None):
        stretch = list(run)
        folded = is_refused and len(stretch) > TOLD_REFUSALS
        for number, wave in [max(stretch, key=lambda pair: pair[1].required_bytes)] if folded else stretch:
            cells = [
                f"{stretch[0][0]:,} - {stretch[-1][0]:,}" if folded else str(number),
                f"{stretch[0][1].start:,} - {stretch[-1][1].next_start - 1:,}" if folded else _items_text(wave),
                f"{wave.width:,}",
                f"{wave.wave.packed_rows:,}",
                f"{wave.wave.logical_rows:,}",
                sharing_text(wave),
                ("<= " if folded else "") + gib_text(wave.required_bytes),
                gib_text(wave.headroom_bytes),
            ]
            table.add_row(
                *(cell for cell, is_shown in zip(cells, shown, strict=True) if is_shown),
                verdict_text(wave),
                wave.price.binding_term,
                style=RUN_STYLES.get(wave.verdict, ""),
            )
    spoken.print(table)
    if narrow:
        spoken.print(f"Left out at this width: {', '.join(h for h in headings if h in NARROW_LEAVES_OUT)}.")
    refusals = [(number, wave) for number, wave in enumerate(plan.waves, start=1) if wave.refusal is not None]
    for number, wave in refusals[:TOLD_REFUSALS]:
        spoken.print(f"Wave {number}, item {wave.start}: {wave.refusal}", style="red", markup=False)
    if len(refusals) > TOLD_REFUSALS:
        least = min(wave.required_bytes for _, wave in refusals)
        most = max(wave.required_bytes for _, wave in refusals)
        spoken.print(
            f"And {len(refusals) - TOLD_REFUSALS:,} more refused. The {len(refusals):,} refused items are priced at "
            f"{least:,} to {most:,} bytes each, the budget is {budget_bytes:,} bytes. --json tells each in full.",
            style="red",
        )
    if plan.stopped is not None:
        why = "There is no profile. " if cold else ""
        planned = len(batch) - plan.unplanned_items
        spoken.print(f"{why}Planned {planned:,} of {_count(len(batch), 'item')}, no further: {plan.stopped}.")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _items_text(wave: WavePlan) -> str:
    last = wave.next_start - 1
    return f"{wave.start:,}" if last == wave.start else f"{wave.start:,} - {last:,}"


def sharing_text(wave: WavePlan) -> str:
    """Logical rows per packed row: "6.73"; a dash where nothing runs."""
    return f"{wave.wave.logical_rows / wave.wave.packed_rows:,.2f}" if wave.wave.packed_rows else "-"


def verdict_text(wave: WavePlan) -> str:
    """The verdict in words: "split in 4"."""
    if wave.verdict is Verdict.SPLIT:
        return f"split in {len(wave.children)}"
    return str(wave.verdict).replace("_", " ")


# --- for programs ----------------------------------------------------------------------------------------------------


def plan_to_json(
    plan: BatchPlan, batch: Batch, budget_bytes: int, law: Law, safety: Safety, order: Sequence[int] | None
) -> dict[str, object]:
    """The whole plan as JSON values. `order`: permutation of `--cluster`, item i of the plan was item order[i]."""
    return {
        "law": law.name,
        "safety": str(safety),
        "budget_bytes": budget_bytes,
        "share": batch.share,
        "items": len(batch),
        "order": None if order is None else list(order),
        "waves": [_wave_to_json(wave) for wave in plan.waves],
        "unplanned_items": plan.unplanned_items,
        "stopped": plan.stopped,
    }


def _wave_to_json(wave: WavePlan) -> dict[str, object]:
    return {
        "start": wave.start,
        "width": wave.width,
        "verdict": str(wave.verdict),
        **_rows_to_json(wave),
        "required_bytes": wave.required_bytes,
        "headroom_bytes": wave.headroom_bytes,
        "binding_term": wave.price.binding_term,
        "price": price_to_json(wave.price) | price_parts_to_json(wave.price),
        "tried": [_tried_to_json(tried) for tried in wave.tried],
        "rungs": [_rung_to_json(rung) for rung in wave.rungs],
        "children": [list(child.requests) for child in wave.children],
        "refusal": None if wave.refusal is None else _refusal_to_json(wave),
    }


def _rows_to_json(wave: WavePlan) -> dict[str, object]:
    return {
        "packed_rows": wave.wave.packed_rows,
        "logical_rows": wave.wave.logical_rows,
        "unshared_rows": wave.shape.unshared_rows,
        "sharing": round(wave.wave.logical_rows / wave.wave.packed_rows, 4) if wave.wave.packed_rows else None,
        "grad_segments": wave.wave.grad_segments,
    }


def _tried_to_json(tried: WidthTried) -> dict[str, object]:
    return {
        "width": tried.width,
        "packed_rows": tried.wave.packed_rows,
        "logical_rows": tried.wave.logical_rows,
        "grad_segments": tried.wave.grad_segments,
        "required_bytes": tried.required_bytes,
        "available_bytes": tried.available_bytes,
        "learned": tried.learned,
        "trusted": tried.trusted,
        "fits": tried.fits,
    }


def _rung_to_json(rung: RungTried) -> dict[str, object]:
    return {
        "subforwards": rung.subforwards,
        "packed_rows": [child.wave.packed_rows for child in rung.children],
        "cost_bytes": rung.cost_bytes,
        "lower_bound_bytes": rung.lower_bound_bytes,
        "available_bytes": rung.available_bytes,
        "fits": rung.fits,
    }


def _refusal_to_json(wave: WavePlan) -> dict[str, object]:
    assert wave.refusal is not None
    return {
        "shortfall_bytes": wave.refusal.shortfall_bytes,
        "rows_that_fit": wave.refusal.rows_that_fit,
        "text": str(wave.refusal),
    }
