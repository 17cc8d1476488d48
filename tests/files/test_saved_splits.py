"""Measured splits are kept with the profiles: in every order of their parts, per signature, the higher peak of two."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.wave_loop.profile_store import ProfileStore
from pricing.formats.profile_file import ProfileFile, load_profiles, profiles_text, save_profiles
from pricing.kernel.errors import FileFormatError
from pricing.kernel.profile import Profile
from pricing.kernel.requests import NO_RECOMPUTE
from pricing.kernel.splits import MOST_SPLITS, merge_splits, split_key_of
from tests.files.test_profile_file import signature
from tests.making import a_reading, a_wave, learned

PARTS = [a_wave(packed_rows=100, logical_rows=300), a_wave(packed_rows=90, logical_rows=90)]


def test_a_split_comes_back_whatever_the_order_of_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    store = ProfileStore(path, {"device": "cpu"})
    store.put(signature(), learned([a_reading(packed_rows=100, peak_delta_bytes=1_000)]))
    store.note_split(split_key_of(signature(), PARTS), 700)
    store.note_split(split_key_of(signature(), PARTS), 600)
    store.save()

    again = ProfileStore(path, {"device": "cpu"})

    assert again.splits == {split_key_of(signature(), PARTS[::-1]): 700}
    other = replace(signature(), recompute=NO_RECOMPUTE)
    assert split_key_of(other, PARTS) not in again.splits


def test_two_processes_join_their_splits(tmp_path: Path) -> None:
    path, key = tmp_path / "profiles.json", split_key_of(signature(), PARTS)
    one, other = ProfileStore(path, {}), ProfileStore(path, {})
    for store, peak_bytes in ((one, 700), (other, 900), (one, 800)):
        store.put(signature(), learned([a_reading(packed_rows=100, peak_delta_bytes=1_000)]))
        store.note_split(key, peak_bytes)
        store.save()

    assert load_profiles(path).splits == {key: 900}


def test_a_file_without_splits_is_written_as_it_was(tmp_path: Path) -> None:
    assert "splits" not in json.loads(profiles_text(ProfileFile(profiles={signature(): Profile()})))


@pytest.mark.parametrize("change", [{"parts": [[1, 2, 3]]}, {"peak_bytes": -1}, {"parts": "x"}, {"more": 1}])
def test_a_damaged_split_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "profiles.json"
    save_profiles(path, ProfileFile(profiles={}, splits={split_key_of(signature(), PARTS): 700}))
    document = json.loads(path.read_text())
    del document["checksum"]
    document["splits"][0] |= change
    path.write_text(json.dumps(document))

    with pytest.raises(FileFormatError):
        load_profiles(path)


def test_the_oldest_are_forgotten_first() -> None:
    keys = [
        split_key_of(signature(), [a_wave(packed_rows=rows, logical_rows=rows)]) for rows in range(1, MOST_SPLITS + 2)
    ]
    merged = merge_splits(dict.fromkeys(keys[:-1], 1), {keys[-1]: 1})
    assert len(merged) == MOST_SPLITS and keys[0] not in merged and keys[-1] in merged
