"""`pricing explain`: a price taken apart, in the order of its formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pricing.cli.output import console, emit_json, price_parts_to_json, price_to_json
from pricing.cli.price import priced_verb
from pricing.formats.profile_file import profile_to_json
from pricing.kernel.laws import find_law
from pricing.kernel.price import COLD_FOOTPRINT, Price
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import LOGICAL_ROW_BYTES
from pricing.kernel.wave import Wave
from pricing.text import gib_text

if TYPE_CHECKING:
    from rich.table import Table


@priced_verb(
    "explain",
    "Price one WAVE and say where each byte of the price comes from, which term decided, and why packed pricing was or "
    "was not eligible.",
)
def command(wave: Wave, profile: Profile, priced: Price, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                **price_to_json(priced),
                **price_parts_to_json(priced),
                "packed_rows": wave.packed_rows,
                "logical_rows": wave.logical_rows,
                "grad_segments": wave.grad_segments,
                "profile": profile_to_json(profile),
            }
        )
        return
    spoken = console()
    spoken.print(f"[bold]{gib_text(priced.required_bytes)}[/] required ({priced.required_bytes:,} bytes)")
    spoken.print(_parts_table(wave, priced))
    spoken.print(f"Law {priced.law}: {find_law(priced.law).summary}.")
    spoken.print(f"Decided by: {priced.quantity}, {priced.binding_term}.", markup=False)
    spoken.print(_quantities_text(priced))
    spoken.print(_eligibility_text(priced))
    spoken.print(_profile_text(profile))


def _parts_table(wave: Wave, priced: Price) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, justify in (("", "left"), ("bytes", "right"), ("", "right"), ("how", "left")):
        table.add_column(heading, justify="right" if justify == "right" else "left")

    def row(name: str, byte_count: int, how: str = "") -> None:
        table.add_row(escape(name), f"{byte_count:,}", gib_text(byte_count), how)

    row("outputs", priced.output_bytes)
    for term in priced.terms:
        chosen = " <- least" if len(priced.terms) > 1 and str(term.binding) == priced.binding_term else ""
        row(f"model, {term.binding}", term.model_bytes, f"{term.bytes_per_row:,} B x {term.rows:,} rows{chosen}")
    if priced.terms and priced.packed_priced:
        row(
            "logical rows",
            priced.logical_charge_bytes,
            _charge_text(priced.logical_charge_bytes, LOGICAL_ROW_BYTES, wave.logical_rows),
        )
        row(
            "segments",
            priced.segment_charge_bytes,
            _charge_text(priced.segment_charge_bytes, wave.segment_state_bytes, wave.grad_segments),
        )
    row("floor", priced.floor_bytes, "at least this much compute")
    row("compute", priced.compute_bytes, "max(floor, least model + charges)")
    row("required", priced.required_bytes, _required_text(priced))
    row("retained after forward", priced.retained_bytes)
    return table


def _required_text(priced: Price) -> str:
    priced_by_own = f"ceil({priced.safety} x (outputs + compute))"
    return priced_by_own if priced.deciding.learned else f"ceil({COLD_FOOTPRINT} x {priced_by_own})"


def _quantities_text(priced: Price) -> str:
    """Both prices in a sentence: what the wave allocates, and what the allocator takes of the device for it."""
    allocated, footprint = priced.allocated, priced.footprint
    how = "by the footprints seen" if footprint.learned else f"{COLD_FOOTPRINT} of that, as no footprint was read yet"
    return (
        f"Allocated: {gib_text(allocated.required_bytes)} ({allocated.binding_term}). "
        f"Footprint: {gib_text(footprint.required_bytes)} ({footprint.binding_term}), {how}."
    )


def _charge_text(charge_bytes: int, each_bytes: int, count: int) -> str:
    """A charge as a product, where it is one: a law may charge only what lies beyond its evidence."""
    return f"{each_bytes:,} B x {count:,}" if charge_bytes == each_bytes * count else "what lies beyond the evidence"


def _eligibility_text(priced: Price) -> str:
    if priced.packed_priced:
        return "Packed-priced: rows the model executes count, sharing is trusted to 8 times what was seen."
    return "Not packed-priced, so priced by sharing seen so far: " + "; ".join(map(str, priced.ineligible)) + "."


def _profile_text(profile: Profile) -> str:
    if profile.is_empty:
        return "Profile: empty, nothing learned yet."
    warm = "no warm fit yet"
    if profile.has_warm_fit:
        warm = f"warm fit {profile.warm_bytes_per_row:,} B a row from {profile.warm_packed_rows:,} rows up"
    return (
        f"Profile: {profile.complete_readings:,} complete readings, at most {profile.peak_bytes_per_row:,} B a row, "
        f"{profile.largest_packed_rows:,} packed rows, sharing {profile.sharing}; {warm}."
    )
