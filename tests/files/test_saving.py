"""Saving: regular files only, whole or not at all, links followed, modes kept; several processes on one file."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pricing import FileFormatError, Profile, ProfileError, Signature, observe, required_bytes
from pricing.formats.files import NotRegularFileError, keep_aside, locked, write_text_atomically
from pricing.formats.profile_file import (
    ProfileFile,
    load_profile,
    load_profiles,
    merge_profiles,
    profiles_text,
    save_profile,
)
from pricing.kernel.merge import merge
from tests.files.test_profile_file import PROFILE, signature
from tests.making import a_reading, a_wave, learned

# --- what may be replaced --------------------------------------------------------------------------------------------


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _folder(path: Path) -> None:
    path.mkdir()


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def _link_to_folder(path: Path) -> None:
    path.symlink_to(path.parent)


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [_fifo, _socket, _folder, _link_to_device, _link_to_folder, _circle])
def test_what_is_no_regular_file_is_never_replaced(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    make(path)
    before = os.lstat(path)
    for act in (
        lambda: save_profile(path, PROFILE),
        lambda: write_text_atomically(path, "text"),
        lambda: merge_profiles(path, ProfileFile(profiles={None: PROFILE})),
        lambda: keep_aside(path),
    ):
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.filename == str(path)
    after = os.lstat(path)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert [item.name for item in tmp_path.iterdir()] == ["profile.json"]


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full", "/dev/zero"])
def test_a_device_stays_a_device(device: str) -> None:
    with pytest.raises(NotRegularFileError, match="is a character device, not a regular file"):
        save_profile(device, PROFILE)
    assert stat.S_ISCHR(os.stat(device).st_mode)


@pytest.mark.parametrize("links", [1, 2, 5])
def test_links_are_followed_and_stay_links(links: int, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "profile.json"
    target.parent.mkdir()
    last = target
    for number in range(links):
        link = tmp_path / f"link-{number}"
        link.symlink_to(os.path.relpath(last, tmp_path))
        last = link
    for profile in (PROFILE, observe(PROFILE, a_reading(50_000, 10**10))):  # the target is made, then replaced
        save_profile(last, profile)
        assert last.is_symlink() and load_profile(target) == load_profile(last) == profile


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666, 0o755])
def test_the_mode_of_a_file_is_kept(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text("")
    path.chmod(mode)
    save_profile(path, PROFILE)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_that_the_process_gives_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_profile(tmp_path / "profile.json", PROFILE)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "profile.json").stat().st_mode) == 0o640


# --- killed writers --------------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from pricing.formats import files
files.os.replace = lambda *_: os._exit(9)
files.write_text_atomically(sys.argv[1], "half")
"""


def test_what_a_killed_save_left_is_removed_by_the_next_and_other_files_stay(tmp_path: Path) -> None:
    path = tmp_path / "pro[f]ile*.json"
    others = [tmp_path / ".profile.json.1.ab.tmp", tmp_path / "pro[f]ile*.json.tmp", tmp_path / ".proile.json.1.tmp"]
    for other in others:
        other.write_text("theirs")
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == 9
    leftovers = set(tmp_path.iterdir()) - set(others)
    assert len(leftovers) == 1 and not path.exists()
    old = time.time() - 60
    for leftover in (*leftovers, *others):
        os.utime(leftover, (old, old))
    save_profile(path, PROFILE)
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_a_living_writer_keeps_its_temporary_file(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    path, temporary = tmp_path / "profile.json", tmp_path / ".profile.json.1.ab.tmp"
    temporary.write_text("being written")
    os.utime(temporary, (0, 0))
    with open(temporary) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        save_profile(path, PROFILE)
        assert temporary.exists()
    save_profile(path, PROFILE)
    assert not temporary.exists()


# --- several processes -----------------------------------------------------------------------------------------------

LEARNING = """
import sys
from pricing import Profile, observe
from pricing.formats.profile_file import ProfileFile, merge_profiles
from tests.files.test_saving import reading_number
from tests.files.test_profile_file import signature
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
profile = Profile()
for number in range(first, first + count):
    profile = observe(profile, reading_number(number))
    name = signature(f"tp={number % 3}")
    merge_profiles(path, ProfileFile(profiles={name: profile, signature(f"own {first}"): profile}))
"""


def reading_number(number: int):  # type: ignore[no-untyped-def]
    draw = random.Random(number)
    rows = draw.randrange(1, 40_000)
    return a_reading(rows, rows * draw.randrange(100_000, 400_000), logical_rows=rows * draw.randrange(1, 9))


def test_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    path, count = tmp_path / "profiles.json", 12
    starts = (0, 100, 200)
    running = [
        subprocess.Popen([sys.executable, "-c", LEARNING, str(path), str(first), str(count)]) for first in starts
    ]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    there = load_profiles(path).profiles
    expected: dict[Signature | None, Profile] = {}
    for first in starts:
        profile = Profile()
        for number in range(first, first + count):
            profile = observe(profile, reading_number(number))
            for name in (signature(f"tp={number % 3}"), signature(f"own {first}")):
                expected[name] = merge(expected.get(name, Profile()), profile)
    assert dict(there) == expected
    assert [item.name for item in tmp_path.iterdir()] == ["profiles.json"]


def test_a_price_never_falls_because_another_process_saved_later(tmp_path: Path) -> None:
    """The last writer would win: its lower rate, and the other's evidence gone."""
    path = tmp_path / "profiles.json"
    high = learned(a_reading(10_000, 5 * 10**9) for _ in range(3))
    low = learned(a_reading(10_000, 10**9) for _ in range(3))
    for profile in (high, low):
        merge_profiles(path, ProfileFile(profiles={None: profile}))
    both = load_profile(path)
    wave = a_wave(10_000)
    assert both == merge(low, high)
    assert required_bytes(wave, both) == required_bytes(wave, high) > required_bytes(wave, low)


def test_another_environment_is_replaced_and_damage_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    ours = ProfileFile(profiles={None: PROFILE}, environment={"torch": "2.13"})
    save_profile(path, learned([a_reading(9, 10**6)]), environment={"torch": "1.13"})
    assert merge_profiles(path, ours).contents == ours == load_profiles(path)
    for number in ("", "-2", "-3"):
        path.write_text("{" + number)
        merged = merge_profiles(path, ours)
        assert merged.aside == tmp_path / f"profiles.json.damaged{number}" and merged.refusal is not None
        assert merged.aside.read_text() == "{" + number and load_profiles(path) == ours


def test_a_lock_held_elsewhere_is_waited_for_and_given_up(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "profiles.json"
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError, match="locked by another process"), locked(path, 0.02):
        raise AssertionError("the lock was had")
    os.close(descriptor)
    with locked(path, 0.02):
        pass


# --- the checksum ----------------------------------------------------------------------------------------------------


def test_no_flipped_bit_makes_another_profile(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(path, PROFILE, signature(), {"torch": "2.13"})
    content, right = path.read_bytes(), load_profiles(path)
    draw, refused = random.Random(20), 0
    for _ in range(600):
        at, bit = draw.randrange(len(content)), 1 << draw.randrange(8)
        path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        try:
            assert load_profiles(path) == right, (at, bit)
        except (FileFormatError, ProfileError):
            refused += 1
    assert refused > 570


def test_a_file_without_a_checksum_is_read_as_0_1_wrote_it(tmp_path: Path) -> None:
    document = json.loads(profiles_text(ProfileFile(profiles={signature(): PROFILE})))
    del document["checksum"]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(document))
    assert load_profile(path) == PROFILE


@pytest.mark.parametrize("checksum", ["", "sha256:", "sha256:" + "0" * 64, "md5:1", 7, True])
def test_a_checksum_that_does_not_fit_is_refused(checksum: object, tmp_path: Path) -> None:
    document = json.loads(profiles_text(ProfileFile(profiles={signature(): PROFILE})))
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(document | {"checksum": checksum}))
    with pytest.raises(FileFormatError, match="checksum"):
        load_profile(path)
