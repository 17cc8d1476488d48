"""The profile file: exact round trips, one text for one content, and a reader that lets nothing pass."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import (
    LAWS,
    ONE_LAYER_FULL,
    FileFormatError,
    Profile,
    ProfileError,
    RecomputeMode,
    Signature,
    observe,
    required_bytes,
)
from pricing.formats.place import Place
from pricing.formats.profile_file import (
    ProfileFile,
    load_profile,
    load_profiles,
    profile_from_json,
    profile_to_json,
    profiles_from_json,
    profiles_text,
    save_profile,
    save_profiles,
)
from pricing.kernel.shares import Share
from pricing.testing import strategies as pp
from tests.making import a_reading, a_wave, learned


def signature(topology: str = "tp=2", *, mode: RecomputeMode = ONE_LAYER_FULL) -> Signature:
    return Signature(
        topology=topology,
        group_count=2,
        request_mixes=("inactive", "target:single"),
        grad_modes=(False, True),
        adapter_shapes=("", "r8:q,v"),
        recompute=mode,
    )


PROFILE = learned(
    [
        a_reading(712, 10**9, logical_rows=712, retained_bytes=10**7),
        a_reading(16_385, 4_509_359_616, logical_rows=131_585),
        a_reading(30_000, 6 * 10**9, logical_rows=31_000, retained_bytes=10**8),
    ]
)


@given(profile=pp.profiles())
def test_a_profile_comes_back_exactly(profile: Profile) -> None:
    text = profiles_text(ProfileFile(profiles={None: profile}))
    read = profiles_from_json(json.loads(text), Place("profile.json"))

    assert read.profiles == {None: profile}
    assert profiles_text(read) == text


@given(kept=st.dictionaries(st.sampled_from(["a", "b", "ü"]), pp.profiles(3), max_size=3))
def test_profiles_by_signature_come_back_and_the_text_does_not_depend_on_their_order(kept: dict[str, Profile]) -> None:
    by_signature: dict[Signature | None, Profile] = {signature(name): profile for name, profile in kept.items()}
    forwards = profiles_text(ProfileFile(profiles=by_signature, environment={"torch": "2.13"}))
    backwards = profiles_text(ProfileFile(profiles=dict(reversed(by_signature.items())), environment={"torch": "2.13"}))
    read = profiles_from_json(json.loads(forwards), Place("profile.json"))

    assert forwards == backwards
    assert (dict(read.profiles), dict(read.environment)) == (by_signature, {"torch": "2.13"})


def test_a_file_of_one_and_a_file_of_several(tmp_path: Path) -> None:
    one, several = tmp_path / "one.json", tmp_path / "several.json"
    save_profile(one, PROFILE, environment={"device": "cpu"})
    selective = signature(mode=RecomputeMode(granularity="selective"))
    mixed = replace(signature(), shares=(Share(quantity="packed", kind="gradients", size_class=3),))
    save_profiles(several, ProfileFile(profiles={signature(): PROFILE, selective: Profile(), mixed: Profile()}))

    assert load_profile(one) == PROFILE
    assert load_profiles(one).environment == {"device": "cpu"}
    assert load_profile(several, signature().digest[:6]) == PROFILE
    assert load_profile(several, selective.digest) == load_profile(several, mixed.digest) == Profile()
    for asked in (None, "zz", "", signature().digest[1:]):
        with pytest.raises(ProfileError, match=signature().digest):
            load_profile(several, asked)


def test_there_is_no_float_in_a_file() -> None:
    def floats(value: object) -> bool:
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return isinstance(value, float) or any(floats(member) for member in members)

    assert not floats(json.loads(profiles_text(ProfileFile(profiles={signature(): PROFILE}))))


# --- what is refused -------------------------------------------------------------------------------------------------


def document(**profile: Any) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(profiles_text(ProfileFile(profiles={signature(): PROFILE})))
    whole["profiles"][0]["profile"] |= profile
    return whole


def read(tmp_path: Path, value: object) -> ProfileFile:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(value))
    return load_profiles(path)


BAD_PROFILES = [
    ({"peak_bytes_per_row": 1.5}, "peak_bytes_per_row"),
    ({"peak_bytes_per_row": True}, "peak_bytes_per_row"),
    ({"peak_bytes_per_row": "12"}, "peak_bytes_per_row"),
    ({"peak_bytes_per_row": -1}, "peak_bytes_per_row"),
    ({"peak_bytes_per_row": 1 << 63}, "peak_bytes_per_row"),
    ({"peak_bytes_per_row": 10**4_100}, "peak_bytes_per_row"),
    ({"largest_packed_rows": None}, "largest_packed_rows"),
    ({"sharing": 7.5}, "sharing"),
    ({"sharing": {"logical_rows": 1, "packed_rows": 2}}, "sharing"),
    ({"sharing": {"logical_rows": 0, "packed_rows": 0}}, "sharing"),
    ({"sharing": {"logical_rows": 3}}, "packed_rows"),
    ({"warm_sharing": {"logical_rows": 3, "packed_rows": 1, "x": 1}}, "x"),
    ({"warm_packed_row": 3}, "warm_packed_row"),
]


@pytest.mark.parametrize(("change", "field"), BAD_PROFILES, ids=lambda value: str(value)[:40])
def test_a_field_that_is_not_what_it_should_be_is_named(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"profile\.json") as caught:
        read(tmp_path, document(**change))

    assert (caught.value.field or "").split(".")[-1] == field


@pytest.mark.parametrize(
    "change",
    [
        {"warm_bytes_per_row": PROFILE.peak_bytes_per_row + 1},
        {"warm_packed_rows": None},
        {"complete_readings": 1},
        {"largest_packed_rows": 0},
        {"retained_bytes_per_row": PROFILE.peak_bytes_per_row + 1},
        {"warm_sharing": {"logical_rows": 10**9, "packed_rows": 1}},
    ],
    ids=str,
)
def test_a_profile_that_no_history_leads_to_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no history of readings leads to this profile"):
        read(tmp_path, document(**change))


@pytest.mark.parametrize("name", ["format", "schema_version", "profiles"])
def test_what_every_file_has_must_be_there(name: str, tmp_path: Path) -> None:
    whole = document()
    del whole[name]
    with pytest.raises(FileFormatError, match=f"{name}: is missing"):
        read(tmp_path, whole)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "other"),
        ("schema_version", 3),
        ("schema_version", 0),
        ("schema_version", 1.0),
        ("extra", 1),
        ("profiles", {}),
    ],
)
def test_a_file_of_another_kind_or_version_is_refused(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=name):
        read(tmp_path, document() | {name: value})


def test_one_signature_twice_is_refused(tmp_path: Path) -> None:
    whole = document()
    whole["profiles"] *= 2
    with pytest.raises(FileFormatError, match="stands there twice"):
        read(tmp_path, whole)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grad_modes", [1]),
        ("grad_modes", [True, False]),
        ("request_mixes", ["b", "a"]),
        ("topology", 3),
        ("recompute", {}),
    ],
)
def test_a_signature_that_is_none_is_refused(name: str, value: object, tmp_path: Path) -> None:
    whole = document()
    whole["profiles"][0]["signature"][name] = value
    with pytest.raises(FileFormatError):
        read(tmp_path, whole)


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    text = profiles_text(ProfileFile(profiles={signature(): PROFILE}))
    path = tmp_path / "profile.json"
    for length in range(0, len(text) - 1, 37):
        path.write_text(text[:length])
        with pytest.raises(FileFormatError):
            load_profiles(path)


# --- profiles of older builds ----------------------------------------------------------------------------------------

WARM_FIELDS = ("warm_bytes_per_row", "warm_packed_rows", "warm_sharing", "frontier")


def without(profile: Profile, *names: str) -> Profile:
    values = {name: value for name, value in profile_to_json(profile).items() if name not in names}
    return profile_from_json(values, Place("profile.json"))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rows", [1, 712, 20_000, 500_000])
def test_a_profile_without_warm_fields_prices_as_before_there_were_any(rows: int, law: str) -> None:
    old = without(PROFILE, *WARM_FIELDS)
    expected = LAWS["packed"] if law in ("warm", "frontier") else LAWS[law]

    assert not old.has_warm_fit
    assert required_bytes(a_wave(rows, 2 * rows), old, LAWS[law]) == required_bytes(
        a_wave(rows, 2 * rows), PROFILE, expected
    )


def test_and_goes_on_learning_from_there() -> None:
    old = without(PROFILE, *WARM_FIELDS)

    assert observe(old, a_reading(1_000, 10**8)).has_warm_fit


def test_half_a_warm_fit_is_refused_not_repaired() -> None:
    with pytest.raises(FileFormatError, match="neither complete nor pending"):
        without(PROFILE, "warm_sharing")
