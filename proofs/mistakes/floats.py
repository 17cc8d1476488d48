"""The third mistake, floats: refuted by running it, because doubles have no place in a proof over integers.

Both counterexamples are searched for, not written down, in a fixed order, and both are checked against the kernel.
"""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import Safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave
from proofs.mistakes.rules import floats_price
from proofs.solver.proof import Given, Theorem, checked, obligations_of
from proofs.solver.symbolic import InexactError

NO_MARGIN = Safety(numerator=1, denominator=1)


@checked("mistake-3")
def a_float_rate_prices_below_its_own_evidence() -> str:
    """The truncated product lies one byte under the peak that the rate was learned from."""
    for at_rows in range(1, 200):
        for compute_bytes in range(at_rows, at_rows + 200):
            if floats_price(at_rows, compute_bytes, at_rows) < compute_bytes:
                assert _kernel_price(at_rows, compute_bytes, at_rows) >= compute_bytes, "the kernel covers it"
                return f"{compute_bytes} B seen at {at_rows} rows are priced {compute_bytes - 1} B at {at_rows} rows"
    raise AssertionError("no counterexample: doubles would be exact")


@checked("mistake-3")
def a_float_price_stands_still_or_drops_while_exact_prices_grow() -> str:
    """Past 2**53 bytes a double drops low bits: one row more costs nothing although the rate is at least a byte."""
    compute_bytes, at_rows = (1 << 53) + 1, (1 << 53) + 1
    for packed_rows in range(1 << 53, (1 << 53) + 64):
        if floats_price(packed_rows + 1, compute_bytes, at_rows) <= floats_price(packed_rows, compute_bytes, at_rows):
            exact = [_kernel_price(rows, compute_bytes, at_rows) for rows in (packed_rows, packed_rows + 1)]
            assert exact[1] > exact[0], "the kernel's price grows with every row"
            return f"at a byte a row, {packed_rows + 1} rows are priced no higher than {packed_rows}"
    raise AssertionError("no counterexample: doubles would be exact")


@checked("mistake-3")
def a_float_stops_a_proof_instead_of_passing_it() -> str:
    """The same rule on symbolic integers does not run at all."""

    def truncated_price_covers(t: Given) -> None:
        compute_bytes, at_rows = t.integer("compute", 0), t.integer("rows", 1)
        t.prove(floats_price(at_rows, compute_bytes, at_rows) >= compute_bytes)

    try:
        list(obligations_of(Theorem("mistake-3", truncated_price_covers)))
    except InexactError as error:
        return str(error)
    raise AssertionError("a true division ran on symbolic integers")


def _kernel_price(packed_rows: int, compute_bytes: int, at_rows: int) -> int:
    reading = Reading(
        packed_rows=at_rows, logical_rows=0, grad_segments=0, output_bytes=0, peak_delta_bytes=compute_bytes
    )
    wave = Wave(packed_rows=packed_rows, logical_rows=0, grad_segments=0, output_bytes=0, workload=Workload.training())
    return evidence_bytes(wave, observe(Profile(), reading), WARM, NO_MARGIN)
