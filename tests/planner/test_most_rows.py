"""The most rows that fit, and the next larger number that does not, beside a count of one after the other."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.kernel.errors import ProfileError, QuantityError
from pricing.kernel.laws import LAWS
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import SHORT_REQUEST_ROWS, TRUST_GROWTH
from pricing.kernel.rate_laws import WARM
from pricing.kernel.requests import NO_RECOMPUTE, Signature
from pricing.kernel.wave import Wave
from pricing.planner.most_rows import Limit, most_rows, workload_for
from tests.planner.naive import learned

sharings = st.fractions(min_value=1, max_value=12, max_denominator=6)
profiles = st.builds(
    learned,
    rows=st.integers(1, 40),
    sharing=st.sampled_from([1, 2, 5]),
    bytes_per_row=st.integers(1, 20_000),
    waves=st.integers(1, 3),
)


@pytest.mark.parametrize("law", list(LAWS))
@given(
    profile=profiles, available=st.integers(-5, 4_000_000), sharing=sharings, multiple=st.sampled_from([1, 1, 7]),
    shortest=st.sampled_from([1, 63, 64, 500]), state=st.sampled_from([0, 90_000]),
)  # fmt: skip
def test_they_are_those_of_a_count(
    law: str, profile: Profile, available: int, sharing: Fraction, multiple: int, shortest: int, state: int
) -> None:
    budget = most_rows(
        profile, available_bytes=available, sharing=sharing, shortest_rows=shortest, law=LAWS[law],
        row_multiple=multiple, output_bytes_per_row=4, segment_state_bytes=state,
    )  # fmt: skip

    def wave(rows: int) -> Wave:
        logical = -(-rows * sharing.numerator // sharing.denominator)
        sequences = -(-logical // shortest)
        return Wave(
            packed_rows=rows, logical_rows=logical, grad_segments=sequences * (1 if sharing == 1 else 2),
            output_bytes=4 * logical, segment_state_bytes=state, workload=workload_for(None, shortest),
        )  # fmt: skip

    def fits(rows: int) -> bool:
        return 0 <= available >= required_bytes(wave(rows), profile, LAWS[law])

    rows = 0
    while rows + multiple <= TRUST_GROWTH * profile.largest_packed_rows and fits(rows + multiple):
        rows += multiple
    assert (budget.rows, budget.wave, budget.next_wave) == (rows, wave(rows), wave(rows + multiple))
    assert budget.price.required_bytes == required_bytes(wave(rows), profile, LAWS[law])
    assert budget.next_price.required_bytes == required_bytes(wave(rows + multiple), profile, LAWS[law])
    assert budget.limit is (Limit.TRUST if fits(rows + multiple) else Limit.MEMORY)


@given(profile=profiles, available=st.integers(0, 4_000_000), sharing=sharings)
def test_more_sharing_never_fits_more_rows(profile: Profile, available: int, sharing: Fraction) -> None:
    apart = most_rows(profile, available_bytes=available, law=WARM)
    shared = most_rows(profile, available_bytes=available, sharing=sharing, law=WARM)
    assert shared.rows <= apart.rows


def test_what_a_signature_asks_for_decides_the_law() -> None:
    """A caller that materialises logits, or recomputes nothing, is not packed-priced."""
    signature = Signature(
        topology="", group_count=1, request_mixes=("logits",), grad_modes=(True,), adapter_shapes=("",),
        recompute=NO_RECOMPUTE,
    )  # fmt: skip
    profile = learned(rows=1_000, bytes_per_row=20_000)
    known = most_rows(profile, available_bytes=40_000_000, signature=signature, law=WARM)
    assert not known.price.packed_priced and known.price.logical_charge_bytes == 0
    packed = most_rows(profile, available_bytes=40_000_000, law=WARM)
    assert packed.price.packed_priced and packed.rows < known.rows
    short = most_rows(profile, available_bytes=40_000_000, shortest_rows=SHORT_REQUEST_ROWS - 1, law=WARM)
    assert not short.price.packed_priced


def test_what_cannot_be_answered_is_refused() -> None:
    profile = learned(rows=10)
    with pytest.raises(ProfileError, match="nothing was learned yet"):
        most_rows(Profile(), available_bytes=1, law=WARM)
    for changed, said in (
        ({"sharing": Fraction(1, 2)}, "sharing"),
        ({"row_multiple": 0}, "row_multiple"),
        ({"shortest_rows": 0}, "shortest_rows"),
        ({"available_bytes": 1.5}, "available_bytes"),
        ({"output_bytes_per_row": -1}, "output_bytes_per_row"),
    ):
        with pytest.raises(QuantityError, match=said):
            most_rows(profile, **({"available_bytes": 1} | changed), law=WARM)


def test_trust_growth_is_named() -> None:
    budget = most_rows(replace(learned(rows=10, bytes_per_row=1)), available_bytes=1 << 40, law=WARM)
    assert (budget.rows, budget.limit, budget.next_wave.packed_rows) == (80, Limit.TRUST, 81)


def test_a_price_that_is_the_budget_fits() -> None:
    profile = learned(rows=1_000, bytes_per_row=20_000)
    exact = most_rows(profile, available_bytes=1 << 40, law=WARM).rows // 2
    price = required_bytes(
        Wave(
            packed_rows=exact, logical_rows=exact, grad_segments=-(-exact // 64), output_bytes=0,
            workload=workload_for(None, 64),
        ),
        profile,
        law=WARM,
    )  # fmt: skip
    assert most_rows(profile, available_bytes=price, law=WARM).rows == exact
    assert most_rows(profile, available_bytes=price - 1, law=WARM).rows == exact - 1
