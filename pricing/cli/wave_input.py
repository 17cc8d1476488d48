"""How a person gives a wave: as options or as a JSON file, with the same names, read by the same strict reader."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import click

from pricing.cli.options import BYTES, COUNT
from pricing.formats.codec import Natural, decode
from pricing.formats.place import Place
from pricing.formats.strict_json import JsonObject, parse_object, read_json_file
from pricing.kernel.requests import INACTIVE, SINGLE_TARGET, RecomputeMode, Workload
from pricing.kernel.wave import Wave

_F = TypeVar("_F", bound=Callable[..., Any])

GRAD_MODES: Final = {"all": (True,), "none": (False,), "mixed": (False, True)}
"""Which groups of the wave run with gradients, in words."""

GRANULARITIES: Final = ("full", "selective", "none")
MOST_PADDING_ROWS: Final = 4_096
"""Padding takes each group to the next multiple of rows: it at most doubles any wave but a tiny one."""

WAVE_HELP: Final = """
The wave is given by options, or as WAVE, a JSON file (- for standard input) with the options' names:

\b
    {"packed_rows": 16205, "logical_rows": 109065, "grad_segments": 9,
     "output_bytes": 436260, "shortest_request": 512}

\b
Only packed_rows and logical_rows must be there. What is left out reads as 0, and the wave as what
training usually is: gradients in all groups, single-target labels, no request shorter than 64
rows, one-layer full recompute. Memory may be written "60GiB" in options; in the file it is bytes.
"""


def wave_options(function: _F) -> _F:
    """The argument WAVE and one option for each of a wave's facts -> `wave_path` and `wave_values` of `read_wave`."""
    options = [
        click.argument("wave_path", metavar="[WAVE]", required=False),
        click.option("--packed-rows", type=COUNT, help="Rows the model executes, padding included (P)."),
        click.option("--logical-rows", type=COUNT, help="Sum of the input lengths of active requests (L)."),
        click.option("--grad-segments", type=COUNT, help="Prefix-tree segments in gradient groups (S)."),
        click.option("--output-bytes", type=BYTES, help="Memory of the requested outputs (O)."),
        click.option("--floor-bytes", type=BYTES, help="Largest analytic lower bound on compute memory (F)."),
        click.option("--checkpoint-retained-bytes", type=BYTES, help="Memory of saved layer inputs (C)."),
        click.option("--segment-state-bytes", type=BYTES, help="State of a segment in one recurrent layer (G)."),
        click.option("--shortest-request", type=COUNT, help="Rows of the shortest active single-target request."),
        click.option("--grads", type=click.Choice(list(GRAD_MODES)), help="Groups that run with gradients."),
        click.option("--request-mix", "request_mixes", multiple=True, help=f'A mix key such as "{SINGLE_TARGET}".'),
        click.option("--recompute", metavar="MODE", help='"full/uniform/1", "selective", "none", ...'),
        click.option("--decoder", type=click.Choice(["train", "eval"]), help="Mode of the decoder."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def read_wave(wave_path: str | None, options: Mapping[str, object]) -> Wave:
    """The wave of a file or of options, never of both. Raises `FileFormatError`, `OSError`, `click.UsageError`."""
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    if wave_path is None:
        if not given:
            raise click.UsageError("Give a wave: --packed-rows and --logical-rows, or a JSON file.")
        return wave_from_json({name: _listed(value) for name, value in given.items()}, Place("options"))
    if given:
        named = ", ".join("--" + name.replace("_", "-") for name in given)
        raise click.UsageError(f"Give the wave as a file or as options, not both: {wave_path} and {named}.")
    if wave_path != "-":
        return wave_from_json(read_json_file(wave_path), Place(wave_path))
    name = "standard input"
    return wave_from_json(parse_object(sys.stdin.buffer.read(), name), Place(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaveFacts:
    """A wave as a person gives it: the names of the options."""

    packed_rows: Natural
    logical_rows: Natural
    grad_segments: Natural = 0
    output_bytes: Natural = 0
    floor_bytes: Natural = 0
    checkpoint_retained_bytes: Natural = 0
    segment_state_bytes: Natural = 0
    forecast_bytes: Natural = 0
    shortest_request: Natural | None = None
    grads: str = "all"
    request_mixes: tuple[str, ...] | None = None
    decoder: str = "train"
    recompute: str = "full/uniform/1"


def wave_from_json(data: JsonObject, place: Place) -> Wave:
    """The wave of one JSON object with the names of the options. Raises `FileFormatError`."""
    facts = decode(_WaveFacts, data, place)
    if facts.packed_rows - facts.logical_rows > max(facts.logical_rows, MOST_PADDING_ROWS):
        rule = f"are more than padding explains above the {facts.logical_rows:,} logical rows: packing shares rows"
        raise place.member("packed_rows").error(rule, facts.packed_rows)
    if facts.grads not in GRAD_MODES:
        raise place.member("grads").error(f"must be one of {', '.join(GRAD_MODES)}", facts.grads)
    mixes = (SINGLE_TARGET,) if facts.request_mixes is None else facts.request_mixes
    for mix in mixes:
        if not is_mix_key(mix):
            rule = f'must be mix keys such as "{SINGLE_TARGET}" or "topk:8+logits"'
            raise place.member("request_mixes").error(rule, mix)
    recompute = _recompute_mode(facts, place)
    return place.build(
        lambda: Wave(
            packed_rows=facts.packed_rows,
            logical_rows=facts.logical_rows,
            grad_segments=facts.grad_segments,
            output_bytes=facts.output_bytes,
            floor_bytes=facts.floor_bytes,
            checkpoint_retained_bytes=facts.checkpoint_retained_bytes,
            segment_state_bytes=facts.segment_state_bytes,
            forecast_bytes=facts.forecast_bytes,
            workload=Workload(
                grad_modes=GRAD_MODES[facts.grads],
                request_mixes=tuple(sorted(set(mixes))),
                recompute=recompute,
                shortest_single_target_rows=facts.shortest_request,
            ),
        )
    )


_MIX_PARTS: Final = (r"target:(single|\(\d+(, \d+)*,?\))", r"topk:\d+", "logits", "hidden", "routes")


def is_mix_key(text: str) -> bool:
    """Whether `mix_key` could have made this: a slip of the pen would quietly be priced by another rule."""
    parts = text.split("+")
    places = [next((at for at, part in enumerate(_MIX_PARTS) if re.fullmatch(part, word)), -1) for word in parts]
    return text == INACTIVE or (places[0] >= 0 and all(left < right for left, right in pairwise(places)))


def _recompute_mode(facts: _WaveFacts, place: Place) -> RecomputeMode:
    """A mode written granularity/method/layers, and the decoder's own mode."""
    if facts.decoder not in ("train", "eval"):
        raise place.member("decoder").error("must be train or eval", facts.decoder)
    text = facts.recompute
    parts = text.split("/")
    if len(parts) > 3 or not all(parts) or (len(parts) == 3 and not parts[2].isdecimal()) or len(parts[-1]) > 18:
        known = False
    else:
        known = parts[0] in GRANULARITIES
    if not known:
        rule = 'must be written like "full/uniform/1", "selective" or "none"'
        raise place.member("recompute").error(rule, text)
    return RecomputeMode(
        granularity=parts[0],
        method=parts[1] if len(parts) > 1 else None,
        num_layers=int(parts[2]) if len(parts) > 2 else None,
        training=facts.decoder == "train",
    )


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
