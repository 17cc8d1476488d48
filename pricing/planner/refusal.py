"""Refusals that explain themselves: what was asked, what it was priced at and why, what was tried, what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pricing.kernel.law import Law
from pricing.kernel.price import Price, required_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import TRUST_GROWTH, ceil_div
from pricing.kernel.wave import Wave
from pricing.planner.budget import fits
from pricing.planner.split import RungTried
from pricing.text import gib_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for, before it became the rows that were priced.

    shared_rows: token rows at full sharing. row_multiple, topology: what rounded them up. padded_tail_rows: of the
    logical rows, those at the ends of requests that are padding. unpadded_bytes: the price without these, None where it
    is not known. floor_parts: what the static floor consists of, by name, in bytes.
    """

    shared_rows: int
    row_multiple: int
    topology: str
    padded_tail_rows: int = 0
    unpadded_bytes: int | None = None
    floor_parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the next item cannot run, before anything ran. `str()` is the whole explanation.

    shortfall_bytes: what the budget lacks for the unsplit wave. rows_that_fit: the most packed rows of a wave of the
    same sharing, segments and outputs a row that would fit (0: none). rungs: every rung tried, each with its own
    figures.
    """

    wave: Wave
    price: Price
    available_bytes: int
    shortfall_bytes: int
    rows_that_fit: int
    rungs: tuple[RungTried, ...]
    asked: Asked | None = None

    @classmethod
    def of(
        cls,
        wave: Wave,
        priced: Price,
        profile: Profile,
        law: Law,
        available_bytes: int,
        rungs: Sequence[RungTried],
        asked: Asked | None = None,
    ) -> Refusal:
        return cls(
            wave=wave,
            price=priced,
            available_bytes=available_bytes,
            shortfall_bytes=max(0, priced.required_bytes - available_bytes),
            rows_that_fit=_rows_that_fit(wave, profile, law, priced, available_bytes),
            rungs=tuple(rungs),
            asked=asked,
        )

    def __str__(self) -> str:
        return "\n".join([self._asked(), *self._rounded(), *self._parts(), *self._tried(), self._remedy()])

    def _asked(self) -> str:
        wave = self.wave
        return (
            f"cannot run {wave.packed_rows:,} packed rows (logical rows {wave.logical_rows:,}, "
            f"segments {wave.grad_segments:,}): "
            f"needs {gib_text(self.price.required_bytes)} of {gib_text(self.available_bytes)}"
        )

    def _rounded(self) -> list[str]:
        """Where the priced rows are others than the requests' own."""
        asked, lines = self.asked, []
        if asked is None:
            return []
        priced = self.wave.packed_rows
        if asked.row_multiple > 1 and priced != asked.shared_rows:
            lines.append(
                f"  {priced:,} rows of {asked.shared_rows:,}: each group is rounded up to a multiple of "
                f"{asked.row_multiple:,} (topology {asked.topology or 'not named'})"
            )
        elif priced != asked.shared_rows:
            lines.append(
                f"  {priced:,} rows of {asked.shared_rows:,}: as many as hold its kinds in the proportions that were "
                f"learned, or the busiest rank's (topology {asked.topology or 'not named'})"
            )
        if asked.padded_tail_rows:
            logical = self.wave.logical_rows
            lines.append(
                f"  {asked.padded_tail_rows:,} of the {logical:,} logical rows are padding at the ends of requests: "
                f"without them {logical - asked.padded_tail_rows:,} would be left, " + self._saved(asked.unpadded_bytes)
            )
        return lines

    def _saved(self, unpadded_bytes: int | None) -> str:
        if unpadded_bytes is None:
            return "and what rows cost shrinks in proportion"
        verdict = "fits" if fits(unpadded_bytes, self.available_bytes) else "does not fit either"
        saved_bytes = max(0, self.price.required_bytes - unpadded_bytes)
        return f"priced {gib_text(unpadded_bytes)} ({gib_text(saved_bytes)} less), which {verdict}"

    def _parts(self) -> list[str]:
        priced = self.price
        parts = [f"  binding term {priced.binding_term}, law {priced.law}, safety factor {priced.safety}"]
        parts += [
            f"  {term.binding}: {term.rows:,} rows x {term.bytes_per_row:,} B = {gib_text(term.model_bytes)}"
            for term in priced.terms
        ]
        charges = (
            ("charge for logical rows", priced.logical_charge_bytes),
            ("charge for segments", priced.segment_charge_bytes),
            ("outputs", priced.output_bytes),
            ("floor", priced.floor_bytes),
            ("forecast, without its safety factor", self.wave.forecast_bytes),
        )
        parts += [f"  {name}: {gib_text(size)}" for name, size in charges if size]
        if self.asked is not None and priced.floor_bytes:
            parts += [f"    of the floor, {name}: {gib_text(size)}" for name, size in self.asked.floor_parts if size]
        return parts

    def _tried(self) -> list[str]:
        if self._is_beyond_trust:
            return [
                f"  the price fits, but the rows are more than {TRUST_GROWTH} times the most ever seen, and what a "
                "cold start needs (outputs, floor and its transient) does not fit"
            ]
        if not self.rungs:
            return ["  a single request cannot be split"]
        lines = ["  no feasible split found; tried:"]
        for rung in self.rungs:
            if rung.cost_bytes is None:
                lines.append(
                    f"    {rung.subforwards} sub-forwards: at least {gib_text(rung.lower_bound_bytes)}, not cut"
                )
            else:
                rows = max(child.wave.packed_rows for child in rung.children)
                lines.append(
                    f"    {rung.subforwards} sub-forwards of at most {rows:,} packed rows: {gib_text(rung.cost_bytes)} "
                    f"of {gib_text(rung.available_bytes)}"
                )
        return lines

    @property
    def _is_beyond_trust(self) -> bool:
        return fits(self.price.required_bytes, self.available_bytes)

    def _remedy(self) -> str:
        if self._is_beyond_trust:
            return f"  would run once a wave of {ceil_div(self.wave.packed_rows, TRUST_GROWTH):,} packed rows was seen"
        if self.rows_that_fit == 0:
            return (
                f"  would fit with {gib_text(self.shortfall_bytes)} more; no wave of this kind fits the budget as it is"
            )
        return (
            f"  would fit with {gib_text(self.shortfall_bytes)} more, "
            f"or with at most {self.rows_that_fit:,} packed rows "
            "at this sharing"
        )


def _rows_that_fit(wave: Wave, profile: Profile, law: Law, priced: Price, available_bytes: int) -> int:
    """Bisects a wave scaled down in proportion: prices never fall as all of its quantities grow."""
    low, high = 0, wave.packed_rows
    while high - low > 1:
        rows = (low + high) // 2
        scaled = replace(
            wave,
            packed_rows=rows,
            logical_rows=wave.logical_rows * rows // wave.packed_rows,
            grad_segments=wave.grad_segments * rows // wave.packed_rows,
            output_bytes=wave.output_bytes * rows // wave.packed_rows,
        )
        if fits(required_bytes(scaled, profile, law, priced.safety), available_bytes):
            low = rows
        else:
            high = rows
    return low
