"""Forecasts of two processes in one file: nobody's is lost, the dearest prices, and the order of saves says nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.formats.profile_file import ProfileFile, load_profiles, merge_profiles, profiles_text, save_profiles
from pricing.kernel.forecast import Forecast, ForecastLine, ForecastOf, forecast_peak_bytes, merge_forecasts

Forecasts = Mapping[ForecastOf, Forecast]
Merge = Callable[[Forecasts, Forecasts], Forecasts]

WAVE = (700, 2_100, 9)

counts = st.integers(0, 1 << 40)
lines = st.builds(
    ForecastLine,
    phase=st.sampled_from(["layers", "head", "step"]),
    fixed_bytes=counts,
    bytes_per_packed_row=counts,
    bytes_per_logical_row=counts,
    bytes_per_segment=counts,
)
forecasts = st.dictionaries(
    st.sampled_from([(("model", "a"),), (("model", "b"),), (("model", "a"), ("loss", "sum"))]),
    st.builds(
        Forecast, lines=st.lists(lines, min_size=1, max_size=3).map(tuple), assumption=st.sampled_from(["", "ROUTING"])
    ),
    max_size=3,
)


def price(known: Forecasts, of: ForecastOf) -> int:
    return forecast_peak_bytes(known[of], *WAVE) if of in known else 0


def keeps_the_dearest(merge: Merge, one: Forecasts, other: Forecasts) -> bool:
    merged = merge(one, other)
    return merged.keys() == one.keys() | other.keys() and all(
        price(merged, of) == max(price(one, of), price(other, of)) for of in merged
    )


def says_nothing_of_the_order(merge: Merge, one: Forecasts, other: Forecasts) -> bool:
    merged = merge(one, other)
    return merged == merge(other, one) and merge(merged, other) == merged == merge(merged, merged)


@given(forecasts, forecasts)
def test_a_merge_keeps_the_dearest_of_each(one: Forecasts, other: Forecasts) -> None:
    assert keeps_the_dearest(merge_forecasts, one, other)
    assert says_nothing_of_the_order(merge_forecasts, one, other)


ONE: Forecasts = {
    (("model", "a"),): Forecast(lines=(ForecastLine(phase="head", fixed_bytes=9, bytes_per_packed_row=1),))
}
OTHER: Forecasts = {
    (("model", "a"),): Forecast(
        lines=(ForecastLine(phase="layers", fixed_bytes=2, bytes_per_packed_row=3),), assumption="ROUTING"
    ),
    (("model", "b"),): Forecast(lines=(ForecastLine(phase="head", fixed_bytes=0, bytes_per_packed_row=1),)),
}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda one, other: {**other, **one}, id="the first says it"),
        pytest.param(lambda one, other: {**one, **other}, id="the last says it"),
        pytest.param(lambda one, other: {of: {**one, **other}[of] for of in one}, id="what only one knows is lost"),
    ],
)
def test_a_wrong_merge_is_noticed(wrong: Merge) -> None:
    assert keeps_the_dearest(merge_forecasts, ONE, OTHER) and says_nothing_of_the_order(merge_forecasts, ONE, OTHER)
    assert not all(
        promise(wrong, *pair)
        for promise in (keeps_the_dearest, says_nothing_of_the_order)
        for pair in ((ONE, OTHER), (OTHER, ONE))
    )


@given(forecasts)
def test_a_file_holds_them_to_the_byte(known: Forecasts) -> None:
    text = profiles_text(ProfileFile(profiles={}, forecasts=known))
    assert (b"forecasts" in text.encode()) == bool(known)


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    save_profiles(path, ProfileFile(profiles={}, forecasts=OTHER))
    assert dict(load_profiles(path).forecasts) == OTHER


def _save(path: str, number: int) -> None:
    for step in range(10):
        line = ForecastLine(phase="head", fixed_bytes=step, bytes_per_packed_row=number)
        own, shared = (("model", f"{number}-{step}"),), (("model", "shared"),)
        known: Forecasts = {own: Forecast(lines=(line,)), shared: Forecast(lines=(line,))}
        merge_profiles(path, ProfileFile(profiles={}, forecasts=known))


def test_two_processes_lose_none(tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_save, args=(str(path), number)) for number in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    known = load_profiles(path).forecasts
    assert len(known) == 21
    assert len(known[(("model", "shared"),)].lines) == 20
