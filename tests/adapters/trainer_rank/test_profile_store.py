"""The profile store: a second run starts warm; a foreign or damaged file is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import ProfileStore
from adapters.wave_loop.profile_store import _differences
from pricing.planner.plan import Verdict
from pricing.planner.setting import Setting
from tests.adapters.trainer_rank.support import CPU
from tests.adapters.trainer_rank.waves import decoder, group, groups, only_profile, rank_on, train
from tests.planner.naive import grpo, learned, only_signature


def test_a_second_run_starts_warm_and_prices_the_same(meter: PeakMeter, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "profiles.json"
    first = rank_on(meter, profiles=path)
    assert not first.profiles.started_warm
    for _ in range(3):
        train(first, [group(0)])
    second = rank_on(meter, profiles=path)
    assert second.profiles.started_warm
    assert second.profiles.refusal is None
    assert dict(second.profiles) == dict(first.profiles)
    assert second.plan(groups(2)).price == first.plan(groups(2)).price
    (wave,) = train(second, [group(0)])
    assert wave.stats.plan.verdict is Verdict.RUN
    assert [file.name for file in path.parent.iterdir()] == ["profiles.json"]


def test_profiles_of_another_environment_are_refused_with_what_differs(meter: PeakMeter, tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    train(rank_on(meter, profiles=path), [group(0)])
    before = path.read_text()
    document = json.loads(before)
    del document["checksum"]  # as 0.1 wrote it
    document["environment"]["torch"] = "1.13.1"
    path.write_text(json.dumps(document))
    rank = rank_on(meter, profiles=path)
    assert rank.profiles.refusal is not None
    assert "torch: file 1.13.1" in rank.profiles.refusal
    assert not rank.profiles.started_warm
    (wave,) = train(rank, [group(0)])
    assert wave.stats.plan.verdict is Verdict.COLD_START
    assert rank_on(meter, profiles=path).profiles.started_warm


def test_profiles_of_another_model_shape_are_refused(meter: PeakMeter, tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    train(rank_on(meter, profiles=path), [group(0)])
    model = decoder(CPU)
    del model.layers[-1]
    object.__setattr__(model.config, "layers", 2)
    rank = rank_on(meter, profiles=path, model=model)
    assert rank.profiles.refusal is not None
    assert "layers: file 3, here 2" in rank.profiles.refusal


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], ""),
        (lambda text: text.replace('"schema_version": 2', '"schema_version": 3'), "schema_version"),
        (lambda text: "", ""),
    ],
)
def test_a_damaged_file_is_refused_and_replaced_by_the_next_save(
    meter: PeakMeter, tmp_path: Path, damage: object, reason: str
) -> None:
    path = tmp_path / "profiles.json"
    train(rank_on(meter, profiles=path), [group(0)])
    assert callable(damage)
    path.write_text(damage(path.read_text()))
    rank = rank_on(meter, profiles=path)
    assert rank.profiles.refusal is not None
    assert reason in rank.profiles.refusal
    assert len(rank.profiles) == 0
    train(rank, [group(0)])
    assert rank_on(meter, profiles=path).profiles.started_warm


def test_a_profile_is_kept_for_each_signature(meter: PeakMeter, tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    rank = rank_on(meter, profiles=path)
    train(rank, [group(0)])
    rank.dp_rank_forward([group(0, grads=False)])
    assert len(rank_on(meter, profiles=path).profiles) == 2


def test_topologies_teach_one_another_nothing(meter: PeakMeter, tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    train(rank_on(meter, profiles=path), [group(0)])
    other = rank_on(meter, profiles=path, topology="tp2")
    assert other.plan([group(0)]).verdict is Verdict.COLD_START


def test_a_file_that_cannot_be_written_does_not_stop_training(
    meter: PeakMeter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    rank = rank_on(meter, profiles=blocked / "profiles.json")
    (wave,) = train(rank, [group(0)])
    assert wave.stats.is_complete
    assert "could not be saved" in caplog.text


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = ProfileStore(None, {"device": "cpu"})
    store.save()
    assert list(tmp_path.iterdir()) == []


def test_only_complete_waves_of_the_first_call_are_in_the_file(meter: PeakMeter, tmp_path: Path) -> None:
    """A caller that breaks off still saves what was learned so far."""
    path = tmp_path / "profiles.json"
    rank = rank_on(meter, profiles=path)
    for _ in rank.forward_micro_batches(groups(3)):
        break
    assert only_profile(rank_on(meter, profiles=path)).complete_readings == 0


@pytest.mark.parametrize(("count", "more"), [(1, ""), (6, ""), (7, "; and 1 more"), (9, "; and 3 more")])
def test_six_differences_are_named_and_the_others_counted(count: int, more: str) -> None:
    names = [f"name{number}" for number in range(count)]
    said = _differences(dict.fromkeys(names, "1"), dict.fromkeys(names, "2"), names)
    assert said.count("file 1, here 2") == min(count, 6)
    assert said.endswith(more or "here 2")


def test_each_save_that_fails_is_counted_and_the_first_of_a_row_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "profiles.json"
    path.mkdir()  # no file can be written in its place
    store = ProfileStore(None, {})
    store.path = path
    store.put(only_signature(grpo(1, 2, 64, 128), Setting()), learned(rows=10))
    for count in (1, 2):
        store.save()
        assert store.failures == count
    path.rmdir()
    store.save()
    assert store.failures == 2 and path.is_file()
    path.unlink()
    path.mkdir()
    store.save()
    assert store.failures == 3
    assert len([line for line in caplog.messages if "could not be saved" in line]) == 2
