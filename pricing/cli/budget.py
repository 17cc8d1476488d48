"""`pricing budget`: the most rows that fit, for trainers that read "at most N tokens a micro-batch"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import click

from pricing.cli.options import (
    BUDGET_BYTES,
    BYTES,
    COUNT,
    json_option,
    law_option,
    safety_option,
    signature_option,
)
from pricing.cli.output import console, emit_json, price_parts_to_json, price_to_json, say
from pricing.formats.profile_file import load_profiles
from pricing.kernel.law import Law
from pricing.kernel.price import Price
from pricing.kernel.quantities import SHORT_REQUEST_ROWS, Safety
from pricing.planner.most_rows import Limit, RowBudget, most_rows
from pricing.text import gib_text

if TYPE_CHECKING:
    _SharingType = click.ParamType[Fraction]
else:  # click before 8.4 has no type parameter
    _SharingType = click.ParamType

DEFAULT_SHARINGS: Final = (Fraction(1), Fraction(2), Fraction(4), Fraction(8))


class Sharing(_SharingType):
    """Logical rows per packed row, at least 1, read exactly: "1", "6.5", "13/2"."""

    name = "sharing"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        if isinstance(value, Fraction):
            return value
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9}|/[1-9]\d{0,8})?", value, re.ASCII) or Fraction(value) < 1:
            self.fail(f'{value[:80]!r} is not a sharing of at least 1, such as "1", "6.5" or "13/2"', param, ctx)
        return Fraction(value)


@click.command(
    "budget",
    help="The most rows (tokens) of a micro-batch that fit, by the PROFILE: a table over sharings, each with its "
    "price, what bound it, and the next larger one that does not fit.\n\n"
    "A trainer that shares no prefixes reads the line of sharing 1; for padded batches the rows are those of the "
    "padded tensor, B times the longest. Exit code: 1 where no rows fit, else 0.\n\nExample:\n\n"
    "\b\n    pricing learn spec/evidence/h200/dense-1.jsonl -o profile.json\n"
    "    pricing budget profile.json --available 60GiB --sharing 1 --law frontier\n",
)
@click.argument("profile_path", metavar="PROFILE")
@click.option(
    "--available",
    "available_bytes",
    type=BUDGET_BYTES,
    required=True,
    help='What is free for a micro-batch beside weights, gradients and optimizer, such as "60GiB".',
)
@click.option(
    "--sharing",
    "sharings",
    type=Sharing(),
    multiple=True,
    help="Logical rows per packed row; may be given again. Default: 1, 2, 4 and 8.",
)
@click.option(
    "--shortest",
    "shortest_rows",
    type=COUNT,
    default=SHORT_REQUEST_ROWS,
    help=f"Rows of the shortest sequence. Default: {SHORT_REQUEST_ROWS}.",
)
@signature_option
@law_option
@safety_option
@click.option("--row-multiple", type=COUNT, default=1, help="Rows come in multiples of it. Default: 1.")
@click.option(
    "--output-bytes-per-row", type=BYTES, default=0, help="Outputs that are kept, a logical row. Default: none."
)
@click.option("--segment-state-bytes", type=BYTES, default=0, help="State of a segment in one recurrent layer (G).")
@json_option
def command(
    profile_path: str,
    available_bytes: int,
    sharings: tuple[Fraction, ...],
    shortest_rows: int,
    signature: str | None,
    law: Law,
    safety: Safety,
    row_multiple: int,
    output_bytes_per_row: int,
    segment_state_bytes: int,
    as_json: bool,
) -> None:
    contents = load_profiles(profile_path)
    profile = contents.select(signature)
    (learned_of,) = (known for known, held in contents.profiles.items() if held is profile)
    budgets = [
        most_rows(
            profile,
            available_bytes=available_bytes,
            sharing=sharing,
            shortest_rows=shortest_rows,
            signature=learned_of,
            law=law,
            safety=safety,
            row_multiple=row_multiple,
            output_bytes_per_row=output_bytes_per_row,
            segment_state_bytes=segment_state_bytes,
        )
        for sharing in sharings or DEFAULT_SHARINGS
    ]
    if as_json:
        document = {
            "law": law.name,
            "safety": str(safety),
            "available_bytes": available_bytes,
            "signature": None if learned_of is None else learned_of.digest,
            "budgets": [budget_to_json(budget) for budget in budgets],
        }
        emit_json(document)
    else:
        _print_budgets(budgets, law, safety)
    raise click.exceptions.Exit(0 if all(budget.rows for budget in budgets) else 1)


def budget_to_json(budget: RowBudget) -> dict[str, object]:
    """One line of the table; bytes and rows as integers."""
    return {
        "sharing": str(budget.sharing),
        "rows": budget.rows,
        "logical_rows": budget.logical_rows,
        **_priced(budget.price),
        "next": {
            "rows": budget.next_wave.packed_rows,
            "logical_rows": budget.next_wave.logical_rows,
            **_priced(budget.next_price),
            "does_not_fit_for": str(budget.limit),
        },
    }


def _priced(priced: Price) -> dict[str, object]:
    return {
        "required_bytes": priced.required_bytes,
        "binding_term": priced.binding_term,
        "price": price_to_json(priced) | price_parts_to_json(priced),
    }


def _print_budgets(budgets: Sequence[RowBudget], law: Law, safety: Safety) -> None:
    from rich.table import Table

    available = gib_text(budgets[0].available_bytes)
    table = Table(title=f"Most rows in {available}, law {law.name}, safety {safety}", title_justify="left")
    for heading in ("sharing", "rows", "logical rows", "price", "bound by", "next rows", "its price"):
        table.add_column(heading, justify="left" if heading == "bound by" else "right", overflow="fold")
    for budget in budgets:
        table.add_row(
            f"{float(budget.sharing):g}",
            f"{budget.rows:,}",
            f"{budget.logical_rows:,}",
            gib_text(budget.price.required_bytes),
            budget.price.binding_term,
            f"{budget.next_wave.packed_rows:,}",
            gib_text(budget.next_price.required_bytes) + (f" ({budget.limit})" if budget.limit is Limit.TRUST else ""),
        )
    console().print(table)
    if any(budget.limit is Limit.TRUST for budget in budgets):
        say("(trust growth): the price would fit, but the rows are more than 8 times the most ever seen.")
    for budget in budgets:
        if not budget.rows:
            say(
                f"At sharing {float(budget.sharing):g} nothing fits: "
                f"{budget.next_wave.packed_rows:,} rows need {gib_text(budget.next_price.required_bytes)}."
            )
