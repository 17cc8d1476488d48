"""Options that verbs share, and the types of what people write after them."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pricing.kernel.laws import DEFAULT_LAW, LAWS, find_law
from pricing.kernel.quantities import DEFAULT_SAFETY, MAX_QUANTITY, Safety

_F = TypeVar("_F", bound=Callable[..., Any])

if TYPE_CHECKING:
    _ParamType = click.ParamType[int]
    _PercentType = click.ParamType[Fraction]
else:  # click before 8.4 has no type parameter
    _ParamType = _PercentType = click.ParamType

_UNIT_BYTES: Final = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}


class Count(_ParamType):
    """An integer in [0, 2**63 - 1]; underscores may group its digits."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"\d{1,3}(_?\d){0,24}", value, re.ASCII) or (count := int(value)) > MAX_QUANTITY:
            self.fail(f"{value[:80]!r} is not an integer from 0 to 2**63 - 1", param, ctx)
        return count


class Bytes(_ParamType):
    """An amount of memory, exact: "4096", "1.5GiB", "12 MB". A fraction of a byte is rounded the safe way."""

    name = "bytes"

    def __init__(self, *, rounds_up: bool) -> None:
        self._rounds_up = rounds_up

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        written = re.fullmatch(r"\s*(\d{1,19}(?:\.\d{1,18})?)\s*([a-zA-Z]{0,3})\s*", value, re.ASCII)
        unit = None if written is None else _UNIT_BYTES.get(written[2].upper())
        if written is None or unit is None:
            self.fail(f'{value[:80]!r} is not an amount of memory such as "4096", "512MiB" or "60GiB"', param, ctx)
        exact = Fraction(written[1]) * unit
        whole = exact.numerator // exact.denominator
        amount = whole + (1 if self._rounds_up and exact != whole else 0)
        if amount > MAX_QUANTITY:
            self.fail(f"{value[:80]!r} is more than 2**63 - 1 bytes", param, ctx)
        return amount


class Percent(_PercentType):
    """A share in percent, at least 0, read exactly: "0.1", "5", "1e-3"."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        if isinstance(value, Fraction):
            return value
        if not re.fullmatch(r"\d{1,19}(\.\d{0,18})?([eE][+-]?\d{1,2})?", value, re.ASCII):
            self.fail(f'{value[:80]!r} is not a share in percent such as "0.1"', param, ctx)
        return Fraction(value)


COUNT: Final = Count()
PERCENT: Final = Percent()
BYTES: Final = Bytes(rounds_up=True)
"""What something needs: a fraction of a byte counts as a byte."""
BUDGET_BYTES: Final = Bytes(rounds_up=False)
"""What there is: a fraction of a byte is none."""


def json_option(function: _F) -> _F:
    """--json -> `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(function)


def law_option(function: _F) -> _F:
    """--law NAME -> `law`, one law."""
    return click.option(
        "--law",
        metavar="NAME",
        default=DEFAULT_LAW.name,
        callback=lambda _ctx, _param, name: find_law(name),
        help=f"Pricing law: {', '.join(LAWS)}. Default: {DEFAULT_LAW.name}.",
    )(function)


def laws_option(function: _F) -> _F:
    """--law NAME, repeatable -> `laws`, every law the build knows if none is named."""
    return click.option(
        "--law",
        "laws",
        metavar="NAME",
        multiple=True,
        callback=lambda _ctx, _param, names: tuple(find_law(name) for name in dict.fromkeys(names or LAWS)),
        help=f"Pricing law, may be given again: {', '.join(LAWS)}. Default: all of them.",
    )(function)


def safety_option(function: _F) -> _F:
    """--safety FACTOR -> `safety`."""
    return click.option(
        "--safety",
        metavar="FACTOR",
        default=str(DEFAULT_SAFETY),
        callback=lambda _ctx, _param, text: Safety.parse(text),
        help=f'Safety factor, read exactly: "51/50" or "1.02". Default: {DEFAULT_SAFETY}.',
    )(function)


def profile_option(*, required: bool) -> Callable[[_F], _F]:
    """--profile FILE -> `profile_path`."""
    return click.option(
        "--profile",
        "profile_path",
        metavar="FILE",
        required=required,
        help="Profile file, as `pricing learn` or a trainer wrote it."
        + ("" if required else " Without one the wave is priced cold."),
    )


def signature_option(function: _F) -> _F:
    """--signature DIGEST -> `signature`."""
    return click.option(
        "--signature",
        metavar="DIGEST",
        help="Which profile of a file that holds several: the first digits of its memory signature.",
    )(function)
