"""How verbs speak: one JSON document for programs, tables for people."""

from __future__ import annotations

import errno
import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pricing.kernel.errors import PricingError
from pricing.kernel.price import Price, QuantityPrice
from pricing.text import visible

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH: Final = 120
"""Columns of a table that goes to no terminal."""
WIDE_COLUMNS: Final = 110
"""From here on a table shows all its columns; narrower ones keep what decides and say what they leave out."""


def say(text: str, *, err: bool = False) -> None:
    """Print a line of text, in which names may stand that others chose."""
    click.echo(visible(text), err=err)


def emit_json(document: object) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False))


def console(*, stderr: bool = False) -> Console:
    """A console for text and tables; as wide as the terminal, or `PIPED_WIDTH` where there is none."""
    from rich.console import Console

    class _Piped(Console):
        def on_broken_pipe(self) -> None:
            """Left to the one place where errors become exit codes; the library itself would exit 1."""
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    spoken = _Piped(stderr=stderr, highlight=False)
    if not spoken.is_terminal:
        spoken.width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    return spoken


def require_picture_ending(path: str) -> None:
    """Check that a picture's name says its format: the plotting library would write another file. `PricingError`."""
    if not Path(path).suffix:
        raise PricingError(f"cannot draw {path}: its ending must say the format, such as .png")


def percent_text(share: Fraction | None) -> str:
    """A signed share in percent with one decimal: "+346.2 %"; a dash for none."""
    return "-" if share is None else f"{float(100 * share):+,.1f} %"


def price_to_json(priced: Price) -> dict[str, object]:
    """The head of a price: what it is, under which law, and which quantity and term decided."""
    return {
        "law": priced.law,
        "safety": str(priced.safety),
        "required_bytes": priced.required_bytes,
        "retained_bytes": priced.retained_bytes,
        "quantity": str(priced.quantity),
        "allocated_bytes": priced.allocated.required_bytes,
        "footprint_bytes": priced.footprint.required_bytes,
        "footprint_learned": priced.footprint.learned,
        "binding_term": priced.binding_term,
        "packed_priced": priced.packed_priced,
        "ineligible": [{"name": reason.name.lower(), "reason": str(reason)} for reason in priced.ineligible],
    }


def price_parts_to_json(priced: Price) -> dict[str, object]:
    """The parts of a price: those of the quantity that decided, and both under `quantities`.

    Each quantity that has evidence is ceil(safety * (output + max(floor, least term + charges))). A footprint without
    has the parts of the allocated price, and 4/3 of its bytes.
    """
    return {
        **_parts_to_json(priced.deciding),
        "output_bytes": priced.output_bytes,
        "floor_bytes": priced.floor_bytes,
        "quantities": {
            str(one.quantity): {
                "learned": one.learned,
                "required_bytes": one.required_bytes,
                "retained_bytes": one.retained_bytes,
                "binding_term": one.binding_term,
                **_parts_to_json(one),
            }
            for one in (priced.allocated, priced.footprint)
        },
    }


def _parts_to_json(one: QuantityPrice) -> dict[str, object]:
    return {
        "compute_bytes": one.compute_bytes,
        "logical_charge_bytes": one.logical_charge_bytes,
        "segment_charge_bytes": one.segment_charge_bytes,
        "terms": [
            {
                "binding": str(term.binding),
                "rows": term.rows,
                "bytes_per_row": term.bytes_per_row,
                "model_bytes": term.model_bytes,
            }
            for term in one.terms
        ],
    }
