"""A profile file that begins from a forecast: it prices first waves of that very model, and stays beside readings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from adapters.forecast import lines, model_needs
from adapters.forecast.model_needs import needs_of
from adapters.forecast.trace import sum_of_outputs
from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import TrainerRank
from pricing.cli.app import pricing
from pricing.formats.profile_file import ProfileFile, load_profiles, merge_profiles, profiles_text, save_profiles
from pricing.kernel.errors import FileFormatError
from pricing.kernel.forecast import Forecast, ForecastLine, ForecastOf, merge_forecasts
from pricing.kernel.profile import Profile
from tests.adapters.forecast.test_first_waves import first_wave, request
from tests.adapters.trainer_rank.support import tiny_decoder
from tests.files.test_profile_file import signature

LINE = ForecastLine(phase="head forward", fixed_bytes=10, bytes_per_packed_row=3)
DEARER = ForecastLine(phase="head forward", fixed_bytes=5, bytes_per_packed_row=7)
OF: ForecastOf = (("model", "Made"), ("target", "cpu"))
Forecasts = dict[ForecastOf, Forecast]
ONE: Forecasts = {OF: Forecast(lines=(LINE,))}
OTHER: Forecasts = {OF: Forecast(lines=(DEARER,), assumption="balance")}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A file of this project's tiny decoder on the CPU."""
    needs = needs_of("tests.adapters.trainer_rank.support:tiny_decoder", on_cuda=False)
    path = tmp_path / "profile.json"
    save_profiles(path, ProfileFile(profiles={}, forecasts={needs.forecast_of: needs.forecast}))
    return path


def rank_of(meter: PeakMeter, path: Path, **settings: Any) -> TrainerRank:
    return TrainerRank(tiny_decoder(), meter=meter, memory_bytes=1 << 30, profiles=path, **settings)


def test_first_waves_are_priced_by_it_and_a_reading_takes_over(
    begun: Path, meter: PeakMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, forecast = next(iter(load_profiles(begun).forecasts.items()))
    monkeypatch.setattr("adapters.forecast.forecaster.forecast_model", untraced)
    rank = rank_of(meter, begun)
    assert not rank.profiles and not rank.profiles.started_warm and rank.profiles.refusal is None
    first = first_wave(rank, [[request(500, targets=True)]]).stats
    assert first.binding_term == "forecast" and first.is_complete
    assert first.plan.wave.forecast_bytes == forecast.line(500, 500, 1).peak_bytes(500, 500, 1)
    assert first.observed_bytes <= first.plan.price.required_bytes
    later = first_wave(rank, [[request(500, targets=True)]]).stats
    assert later.binding_term == "all_readings" and later.plan.wave.forecast_bytes == 0
    kept = load_profiles(begun)
    assert dict(kept.forecasts) == {of: forecast}, "beside what was read"
    assert kept.select() and "forecast" not in json.dumps(json.loads(begun.read_text())["profiles"])
    again = rank_of(meter, begun)
    assert again.profiles.started_warm
    assert again.plan([[request(500, targets=True)]]).price.binding_term.startswith("frontier[")


def untraced(*_: object, **__: object) -> Forecast:
    raise AssertionError("it was there already")


def test_it_is_used_for_nothing_else(begun: Path, meter: PeakMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests, another loss, a model that trains less: each is traced for itself."""
    asked: list[object] = []

    def traced(model: object, *_: object, **__: object) -> Forecast:
        asked.append(model)
        return Forecast(lines=(LINE,))

    monkeypatch.setattr("adapters.forecast.forecaster.forecast_model", traced)
    wanted = [[request(100, targets=True)]]
    rank = rank_of(meter, begun)
    rank.plan([[request(100, targets=True, logits=True)]])
    rank_of(meter, begun, forecast_loss=lambda outputs: 2 * sum_of_outputs(outputs)).plan(wanted)
    assert len(asked) == 2
    rank.plan(wanted)
    assert len(asked) == 2
    model: Any = rank._model
    model.layers[0].requires_grad_(False)
    rank.plan(wanted)
    assert len(asked) == 3, "and a change of the model is noticed"


@pytest.mark.parametrize("environment", [{}, {"device": "another"}])
def test_a_command_adds_to_a_file_and_takes_nothing_away(tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "profile.json"
    save_profiles(path, ProfileFile(profiles={signature(): Profile()}, environment=environment))
    merge_profiles(path, ProfileFile(profiles={}, forecasts=ONE))
    merge_profiles(path, ProfileFile(profiles={}, forecasts=OTHER))
    there = load_profiles(path)
    assert dict(there.profiles) == {signature(): Profile()} and dict(there.environment) == environment
    assert set(there.forecasts[OF].lines) == {LINE, DEARER} and there.forecasts[OF].assumption == "balance"
    merge_profiles(path, ProfileFile(profiles={signature(): Profile()}, environment={"device": "new"}))
    assert load_profiles(path).forecasts == there.forecasts, "a file that is replaced keeps them"


def test_forecasts_merge_in_any_order() -> None:
    third: Forecasts = {OF: Forecast(lines=(LINE, DEARER)), (("model", "B"),): Forecast(lines=(LINE,))}
    orders = [(ONE, OTHER, third), (third, OTHER, ONE), (OTHER, ONE, third)]
    texts = {
        profiles_text(ProfileFile(profiles={}, forecasts=merge_forecasts(merge_forecasts(a, b), c)))
        for a, b, c in orders
    }
    assert len(texts) == 1
    assert merge_forecasts(third, third) == third


def test_a_file_without_forecasts_is_written_as_it_was() -> None:
    assert "forecasts" not in json.loads(profiles_text(ProfileFile(profiles={signature(): Profile()})))


@pytest.mark.parametrize(
    "change", [{"of": {"model": 1}}, {"lines": []}, {"lines": [{}]}, {"assumption": None}, {"more": 1}, {"of": None}]
)
def test_a_damaged_forecast_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "profile.json"
    save_profiles(path, ProfileFile(profiles={}, forecasts=ONE))
    document = json.loads(path.read_text())
    del document["checksum"]
    document["forecasts"][0] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(FileFormatError):
        load_profiles(path)


def test_the_command_writes_one_that_holds_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_needs, "forecast_model", lambda *_, **__: ONE[OF])
    path = tmp_path / "profile.json"
    model = "tests.adapters.trainer_rank.support:tiny_decoder"
    done = CliRunner().invoke(pricing, ["forecast", "--model", model, "--gpu", "1GiB", "-o", str(path)])
    assert done.exit_code == 0, done.output
    ((of, forecast),) = load_profiles(path).forecasts.items()
    assert forecast == ONE[OF] and not load_profiles(path).has_readings
    facts = dict(of)
    assert (facts["target"], facts["recompute"]) == ("cuda", "full/uniform/1")
    assert facts["transient_bytes"] == str(lines.COLD_TRANSIENT_BYTES)
