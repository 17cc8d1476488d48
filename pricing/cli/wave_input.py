"""How a person gives a wave: as options or as a JSON file, with the same names, read by the same strict reader."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeVar

import click

from pricing.cli.options import BYTES, COUNT
from pricing.formats.strict_json import Fields, parse_json, read_json_file
from pricing.kernel.errors import FileFormatError
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
        return wave_from_json(Fields({name: _listed(value) for name, value in given.items()}, "options"))
    if given:
        named = ", ".join("--" + name.replace("_", "-") for name in given)
        raise click.UsageError(f"Give the wave as a file or as options, not both: {wave_path} and {named}.")
    if wave_path != "-":
        return wave_from_json(read_json_file(wave_path))
    value = parse_json(sys.stdin.buffer.read(), "standard input")
    if not isinstance(value, dict):
        raise FileFormatError("standard input", "must hold one JSON object", value=value)
    return wave_from_json(Fields(value, "standard input"))


def wave_from_json(fields: Fields) -> Wave:
    """The wave of one JSON object with the names of the options. Raises `FileFormatError`."""
    packed_rows, logical_rows = fields.count("packed_rows"), fields.count("logical_rows")
    if packed_rows - logical_rows > max(logical_rows, MOST_PADDING_ROWS):
        rule = f"are more than padding explains above the {logical_rows:,} logical rows: packing shares rows"
        raise fields.error("packed_rows", rule, packed_rows)
    grad_segments, output_bytes = fields.count("grad_segments", 0), fields.count("output_bytes", 0)
    floor_bytes, kept_bytes = fields.count("floor_bytes", 0), fields.count("checkpoint_retained_bytes", 0)
    state_bytes = fields.count("segment_state_bytes", 0)
    forecast_bytes = fields.count("forecast_bytes", 0)
    shortest_rows = fields.optional_count("shortest_request")
    grads = fields.text("grads", "all")
    if grads not in GRAD_MODES:
        raise fields.error("grads", f"must be one of {', '.join(GRAD_MODES)}", grads)
    mixes = fields.texts("request_mixes") if fields.has("request_mixes") else (SINGLE_TARGET,)
    for mix in mixes:
        if not is_mix_key(mix):
            raise fields.error("request_mixes", f'must be mix keys such as "{SINGLE_TARGET}" or "topk:8+logits"', mix)
    recompute = _recompute_mode(fields)
    fields.finish()
    return fields.build(
        lambda: Wave(
            packed_rows=packed_rows,
            logical_rows=logical_rows,
            grad_segments=grad_segments,
            output_bytes=output_bytes,
            floor_bytes=floor_bytes,
            checkpoint_retained_bytes=kept_bytes,
            segment_state_bytes=state_bytes,
            forecast_bytes=forecast_bytes,
            workload=Workload(
                grad_modes=GRAD_MODES[grads],
                request_mixes=tuple(sorted(set(mixes))),
                recompute=recompute,
                shortest_single_target_rows=shortest_rows,
            ),
        )
    )


_MIX_PARTS: Final = (r"target:(single|\(\d+(, \d+)*,?\))", r"topk:\d+", "logits", "hidden", "routes")


def is_mix_key(text: str) -> bool:
    """Whether `mix_key` could have made this: a slip of the pen would quietly be priced by another rule."""
    parts = text.split("+")
    places = [next((at for at, part in enumerate(_MIX_PARTS) if re.fullmatch(part, word)), -1) for word in parts]
    return text == INACTIVE or (places[0] >= 0 and all(left < right for left, right in pairwise(places)))


def _recompute_mode(fields: Fields) -> RecomputeMode:
    """A mode written granularity/method/layers, and the decoder's own mode."""
    decoder = fields.text("decoder", "train")
    if decoder not in ("train", "eval"):
        raise fields.error("decoder", "must be train or eval", decoder)
    text = fields.text("recompute", "full/uniform/1")
    parts = text.split("/")
    if len(parts) > 3 or not all(parts) or (len(parts) == 3 and not parts[2].isdecimal()) or len(parts[-1]) > 18:
        known = False
    else:
        known = parts[0] in GRANULARITIES
    if not known:
        raise fields.error("recompute", 'must be written like "full/uniform/1", "selective" or "none"', text)
    return RecomputeMode(
        granularity=parts[0],
        method=parts[1] if len(parts) > 1 else None,
        num_layers=int(parts[2]) if len(parts) > 2 else None,
        training=decoder == "train",
    )


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
