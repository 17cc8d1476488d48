"""How many rows fit: the token budget of trainers that cut micro-batches by a number of tokens.

Such a trainer reads one number ("at most N tokens a micro-batch"). This is that number, by what was learned: the most
rows whose price fits what is available, with the price and what bound it, and the next larger one that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from pricing.kernel.errors import ProfileError, QuantityError
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import Price, price, required_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import (
    DEFAULT_SAFETY,
    MAX_QUANTITY,
    SHORT_REQUEST_ROWS,
    TRUST_GROWTH,
    Safety,
    ceil_div,
    require_count,
    require_integer,
)
from pricing.kernel.requests import SINGLE_TARGET, Signature, Workload
from pricing.kernel.wave import Wave
from pricing.planner.budget import fits

NOT_SHARED: Final = Fraction(1)


class Limit(StrEnum):
    """Why the next larger number of rows does not run."""

    MEMORY = "memory"
    """Its price does not fit what is available."""

    TRUST = "trust growth"
    """It is more than 8 times the most rows ever seen: a wave of these rows must be seen first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBudget:
    """The most packed rows of a wave, at one sharing. 0 rows: not even the smallest wave fits.

    wave, price: of these rows. next_wave, next_price: the next larger wave (a row multiple more), which does not fit.
    limit: why not.
    """

    sharing: Fraction
    available_bytes: int
    wave: Wave
    price: Price
    next_wave: Wave
    next_price: Price
    limit: Limit

    @property
    def rows(self) -> int:
        """Rows that execute: what a trainer without sharing calls tokens."""
        return self.wave.packed_rows

    @property
    def logical_rows(self) -> int:
        """Tokens of all sequences together; equal to `rows` where nothing is shared."""
        return self.wave.logical_rows


def workload_for(signature: Signature | None, shortest_rows: int) -> Workload:
    """What waves of a signature ask for, whose shortest sequence has `shortest_rows`; without one, training."""
    if signature is None:
        return Workload.training(shortest_rows=shortest_rows)
    return Workload(
        grad_modes=signature.grad_modes,
        request_mixes=signature.request_mixes,
        recompute=signature.recompute,
        shortest_single_target_rows=shortest_rows if SINGLE_TARGET in signature.request_mixes else None,
    )


def most_rows(
    profile: Profile,
    *,
    available_bytes: int,
    sharing: Fraction = NOT_SHARED,
    shortest_rows: int = SHORT_REQUEST_ROWS,
    signature: Signature | None = None,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
    row_multiple: int = 1,
    output_bytes_per_row: int = 0,
    segment_state_bytes: int = 0,
) -> RowBudget:
    """The most rows that fit `available_bytes`, as a multiple of `row_multiple`, within trust growth.

    sharing: logical rows per packed row, at least 1. shortest_rows: of the shortest sequence; it decides whether waves
    are packed-priced and how many sequences there may be at most, each one segment (two where prefixes are shared).
    output_bytes_per_row: outputs that are kept, of each logical row. signature: what the profile was learned of.

    Prices never fall as rows grow (INV-1, INV-2), so this is a bisection. Raises `ProfileError` for a profile that
    nothing was learned into, `QuantityError` for what is no quantity.
    """
    if profile.is_empty:
        raise ProfileError("nothing was learned yet: a profile without readings says nothing of how many rows fit")
    require_integer("available_bytes", available_bytes)
    for name, value in (
        ("shortest_rows", shortest_rows),
        ("row_multiple", row_multiple),
        ("output_bytes_per_row", output_bytes_per_row),
        ("segment_state_bytes", segment_state_bytes),
    ):
        require_count(name, value)
    for name, value in (("shortest_rows", shortest_rows), ("row_multiple", row_multiple)):
        if value < 1:
            raise QuantityError(name, value, "must be at least 1")
    if sharing < 1:
        raise QuantityError("sharing", str(sharing), "must be at least 1")
    workload = workload_for(signature, shortest_rows)
    trusted_rows = TRUST_GROWTH * profile.largest_packed_rows
    most_steps = min(trusted_rows, int(MAX_QUANTITY // (sharing * max(1, output_bytes_per_row)))) // row_multiple

    def wave(steps: int) -> Wave:
        rows = steps * row_multiple
        logical_rows = -(-rows * sharing.numerator // sharing.denominator)
        sequences = ceil_div(logical_rows, shortest_rows)
        segments = sequences if sharing == NOT_SHARED else 2 * sequences
        return Wave(
            packed_rows=rows,
            logical_rows=logical_rows,
            grad_segments=segments if workload.grads else 0,
            output_bytes=output_bytes_per_row * logical_rows,
            segment_state_bytes=segment_state_bytes,
            workload=workload,
        )

    def runs(steps: int) -> bool:
        return fits(required_bytes(wave(steps), profile, law, safety), available_bytes)

    low, high = 0, most_steps + 1  # `low` runs (no rows always do), `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        if runs(middle):
            low = middle
        else:
            high = middle
    widest, beyond = wave(low), wave(low + 1)
    return RowBudget(
        sharing=sharing,
        available_bytes=available_bytes,
        wave=widest,
        price=price(widest, profile, law, safety),
        next_wave=beyond,
        next_price=price(beyond, profile, law, safety),
        limit=Limit.TRUST if runs(low + 1) else Limit.MEMORY,
    )
