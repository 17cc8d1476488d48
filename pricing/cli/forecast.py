"""`pricing forecast`: what a model will need, before any device is at hand."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import click

from pricing.cli.options import BUDGET_BYTES, COUNT, json_option, law_option, safety_option
from pricing.cli.output import console, emit_json, require_picture_ending, say
from pricing.cli.progress import Progress
from pricing.formats.profile_file import ProfileFile, merge_profiles
from pricing.kernel.law import Law
from pricing.kernel.quantities import SHORT_REQUEST_ROWS, Safety
from pricing.planner.budget import reserve_of
from pricing.planner.model_needs import (
    ForecastWave,
    ModelNeeds,
    available_on,
    forecast_wave,
    most_forecast_rows,
    usual_rows,
)
from pricing.text import gib_text

_ADAPTER: Final = "adapters.forecast.model_needs"
"""Looked up by name when the verb runs: what builds and runs models needs torch, and nothing else here does."""

PLOTTED: Final = 64


@click.command(
    "forecast",
    help="What a model will need, without a device: parameters, gradients, optimizer states, one wave at several row "
    "counts, and the most rows that fit.\n\n"
    "MODEL is a Hugging Face configuration (CONFIG.json, or its folder), or package.module:function that makes a "
    "decoder. It is built and run without memory and without arithmetic. Prices are those that a first wave is held "
    "to: the forecast, times 11/10, times 4/3 until a footprint was seen. Needs the extra `hf` (`torch` for a "
    "function). Exit code: 1 where no rows or not the optimizer's step fit, else 0.\n\nExample:\n\n"
    "\b\n    pricing forecast --model config.json --gpu 141GiB --lora-rank 16\n",
)
@click.option("--model", metavar="MODEL", required=True, help="CONFIG.json, its folder, or package.module:function.")
@click.option("--gpu", "gpu_bytes", type=BUDGET_BYTES, required=True, help='Memory of the device, such as "141GiB".')
@click.option("--rows", "row_counts", type=COUNT, multiple=True, help="Rows of a wave to show; may be given again.")
@click.option(
    "--shortest",
    "shortest_rows",
    type=COUNT,
    default=SHORT_REQUEST_ROWS,
    help=f"Rows of a request: how many a wave has. Default: {SHORT_REQUEST_ROWS}, the most requests that laws expect.",
)
@click.option("--lora-rank", type=COUNT, default=0, help="Train adapters of this rank only. Default: everything.")
@click.option(
    "--optimizer",
    metavar="NAME",
    default="adamw",
    help="Its states and step: adamw, adamw-fused, adamw-fp32 (with fp32 copies), momentum, sgd, or a class of "
    "torch.optim. Default: adamw.",
)
@click.option("--recompute/--no-recompute", default=True, help="Recompute a layer at a time. Default: yes.")
@law_option
@safety_option
@click.option("--plot", metavar="FILE", help="Draw price over rows, and what the device has, into FILE.")
@click.option("-o", "--output", metavar="FILE", help="Begin a profile file with this forecast, or add it to one.")
@json_option
def command(
    model: str,
    gpu_bytes: int,
    row_counts: tuple[int, ...],
    shortest_rows: int,
    lora_rank: int,
    optimizer: str,
    recompute: bool,
    law: Law,
    safety: Safety,
    plot: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    if plot is not None:
        require_picture_ending(plot)
    needs_of: Any = importlib.import_module(_ADAPTER).needs_of
    with Progress("forecasting"):
        needs: ModelNeeds = needs_of(model, lora_rank=lora_rank, optimizer=optimizer, recompute=recompute)
    available_bytes = available_on(needs, gpu_bytes)

    def wave(rows: int) -> ForecastWave:
        return forecast_wave(needs, rows, shortest_rows=shortest_rows, law=law, safety=safety)

    most = most_forecast_rows(needs, available_bytes, shortest_rows=shortest_rows, law=law, safety=safety)
    waves = [
        wave(rows) for rows in sorted({*(row_counts or usual_rows(most.rows)), *([most.rows] if most.rows else [])})
    ]
    if plot is not None:
        widest = max(waves[-1].rows, 1_024)
        _draw([wave(widest * step // PLOTTED) for step in range(1, PLOTTED + 1)], needs, gpu_bytes, most, plot)
    if output is not None:
        merge_profiles(output, ProfileFile(profiles={}, forecasts={needs.forecast_of: needs.forecast}))
    if as_json:
        emit_json(_document(needs, gpu_bytes, available_bytes, waves, most, law))
    else:
        _print(needs, gpu_bytes, available_bytes, waves, most)
    raise click.exceptions.Exit(0 if most.rows and needs.optimizer_step_bytes <= available_bytes else 1)


def _document(
    needs: ModelNeeds, gpu_bytes: int, available_bytes: int, waves: Sequence[ForecastWave], most: ForecastWave, law: Law
) -> dict[str, object]:
    return {
        "model": needs.name,
        "evidence": "forecast",
        "assumption": needs.forecast.assumption,
        "law": law.name,
        "recompute": str(needs.recompute),
        "parameters": needs.parameters,
        "trainable_parameters": needs.trainable,
        "parameter_bytes": needs.parameter_bytes,
        "gradient_bytes": needs.gradient_bytes,
        "optimizer": needs.optimizer,
        "optimizer_bytes": needs.optimizer_bytes,
        "optimizer_step_bytes": needs.optimizer_step_bytes,
        "gpu_bytes": gpu_bytes,
        "reserve_bytes": reserve_of(gpu_bytes),
        "available_bytes": available_bytes,
        "lines": [
            {
                "phase": line.phase,
                "fixed_bytes": line.fixed_bytes,
                "bytes_per_packed_row": line.bytes_per_packed_row,
                "bytes_per_logical_row": line.bytes_per_logical_row,
                "bytes_per_segment": line.bytes_per_segment,
            }
            for line in needs.forecast.lines
        ],
        "waves": [_wave_to_json(wave, available_bytes) for wave in waves],
        "most_rows": most.rows,
    }


def _wave_to_json(wave: ForecastWave, available_bytes: int) -> dict[str, object]:
    return {
        "rows": wave.rows,
        "requests": wave.requests,
        "forecast_bytes": wave.peak_bytes,
        "phase": wave.phase,
        "required_bytes": wave.price.required_bytes,
        "binding_term": wave.price.binding_term,
        "fits": wave.price.required_bytes <= available_bytes,
    }


def _print(
    needs: ModelNeeds, gpu_bytes: int, available_bytes: int, waves: Sequence[ForecastWave], most: ForecastWave
) -> None:
    from rich.table import Table

    fixed = Table(title=f"{needs.name}: what stays on a device of {gib_text(gpu_bytes)}", title_justify="left")
    fixed.add_column("part", overflow="fold")
    fixed.add_column("size", justify="right", no_wrap=True)
    for name, size in (
        (f"parameters ({needs.parameters:,})", needs.parameter_bytes),
        (f"gradients ({needs.trainable:,} trained)", needs.gradient_bytes),
        (f"optimizer states ({needs.optimizer})", needs.optimizer_bytes),
        ("reserve", reserve_of(gpu_bytes)),
        ("left for waves", available_bytes),
        ("of that for a moment, the optimizer's step", needs.optimizer_step_bytes),
    ):
        fixed.add_row(name, gib_text(size))
    console().print(fixed)
    table = Table(title="One wave, as its first is priced (evidence: forecast)", title_justify="left")
    for heading in ("rows", "requests", "forecast", "held", "fits"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("peak in", overflow="fold")
    for wave in waves:
        table.add_row(
            f"{wave.rows:,}",
            f"{wave.requests:,}",
            gib_text(wave.peak_bytes),
            gib_text(wave.price.required_bytes),
            "yes" if wave.price.required_bytes <= available_bytes else "no",
            wave.phase,
        )
    console().print(table)
    if most.rows:
        say(f"At most {most.rows:,} rows fit.")
    else:
        say("No wave fits: what stays on the device leaves too little.")
    if needs.optimizer_step_bytes > available_bytes:
        say("The optimizer's step does not fit: it takes more than what is left, for a moment.")
    if needs.forecast.assumption:
        say(f"Assumed: {needs.forecast.assumption}.")


def _draw(waves: Sequence[ForecastWave], needs: ModelNeeds, gpu_bytes: int, most: ForecastWave, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from pricing.kernel.errors import PricingError
    from pricing.kernel.quantities import GIB
    from pricing.text import visible

    figure, panel = pyplot.subplots(figsize=(9, 5), layout="constrained")
    try:
        rows = [wave.rows for wave in waves]
        fixed = needs.fixed_bytes / GIB
        panel.plot(rows, [fixed + wave.price.required_bytes / GIB for wave in waves], color="#A9CBE6", label="held")
        panel.plot(rows, [fixed + wave.peak_bytes / GIB for wave in waves], color="#0072B2", label="forecast")
        panel.axhline(fixed, color="#009E73", linestyle=":", label="parameters, gradients, optimizer")
        panel.axhline((gpu_bytes - reserve_of(gpu_bytes)) / GIB, color="#222222", linestyle="--", label="the device")
        if most.rows:
            panel.axvline(most.rows, color="#B36B00", linewidth=1, label=f"{most.rows:,} rows")
        panel.set_xlabel("packed rows of one wave")
        panel.set_ylabel("GiB")
        panel.set_title(visible(needs.name))
        panel.set_ylim(bottom=0)
        panel.legend(frameon=False)
        try:
            figure.savefig(path, dpi=150)
        except ValueError as error:
            raise PricingError(f"cannot draw {path}: {error}") from error
    finally:
        pyplot.close(figure)
