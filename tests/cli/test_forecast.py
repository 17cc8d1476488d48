"""`pricing forecast`: a model's needs without a device, by table, JSON and picture; what it refuses, in words."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from adapters.forecast import model_needs
from adapters.forecast.errors import ForecastError
from adapters.forecast.model_needs import needs_of
from pricing.cli.app import pricing
from pricing.kernel.forecast import FORECAST_SAFETY, Forecast, ForecastLine
from pricing.kernel.quantities import GIB, MIB, with_safety
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL
from pricing.planner.budget import fits
from pricing.planner.model_needs import ModelNeeds, available_on, forecast_wave, most_forecast_rows

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}

NEEDS = ModelNeeds(
    name="Made",
    parameters=1_000,
    trainable=1_000,
    parameter_bytes=2_000,
    gradient_bytes=2_000,
    optimizer="adamw",
    optimizer_bytes=4_000,
    recompute=ONE_LAYER_FULL,
    forecast=Forecast(
        lines=(
            ForecastLine(phase="head forward", fixed_bytes=10_000_000, bytes_per_packed_row=10),
            ForecastLine(phase="decoder backward", fixed_bytes=0, bytes_per_packed_row=10_000, bytes_per_segment=7),
        ),
        assumption="something",
    ),
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is built and bound, its waves are not traced: `tests/adapters/forecast` does that."""
    monkeypatch.setattr(model_needs, "forecast_model", lambda *_, **__: NEEDS.forecast)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_needs, "needs_of", lambda model, **_: NEEDS)


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(pricing, ["forecast", *arguments])


@pytest.mark.usefixtures("untraced")
def test_fixed_bytes_are_those_of_the_model_that_would_be_built(config: Path) -> None:
    import transformers

    build: Any = transformers.AutoModelForCausalLM
    real = build.from_config(transformers.AutoConfig.for_model(**CONFIG))
    needs = needs_of(str(config))
    assert needs.parameters == needs.trainable == sum(value.numel() for value in real.parameters())
    assert needs.gradient_bytes == sum(value.nbytes for value in real.parameters())
    assert needs.parameter_bytes == needs.gradient_bytes + sum(value.nbytes for value in real.buffers())
    assert needs.recompute == ONE_LAYER_FULL


def test_waves_are_traced_from_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | {"num_hidden_layers": 1}))
    done = run("--model", str(path), "--gpu", "1GiB", "--rows", "2000", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["model"] == "Qwen3ForCausalLM"
    assert document["lines"][0]["phase"] == "decoder forward"
    logits_bytes = 512 * CONFIG["vocab_size"] * 4
    assert document["waves"][0]["forecast_bytes"] > 64 * MIB + 2_000 * CONFIG["hidden_size"] * 4 + logits_bytes


@pytest.mark.usefixtures("untraced")
def test_adapters_train_little_and_a_folder_will_do(config: Path) -> None:
    needs = needs_of(str(config.parent), lora_rank=4, recompute=False)
    assert 0 < needs.trainable < needs.parameters // 2
    assert needs.recompute == NO_RECOMPUTE


@pytest.mark.usefixtures("untraced")
def test_an_optimizer_that_is_none_is_refused_in_words(config: Path) -> None:
    with pytest.raises(ForecastError, match=r"one of adamw, .*Adafactor.*, got 'adam8bit'"):
        needs_of(str(config), optimizer="adam8bit")


@pytest.mark.usefixtures("made")
def test_json_says_what_the_planner_says() -> None:
    done = run("--model", "x.json", "--gpu", "1GiB", "--rows", "5000", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    available = available_on(NEEDS, GIB)
    most = most_forecast_rows(NEEDS, available)
    assert (document["available_bytes"], document["most_rows"]) == (available, most.rows)
    assert [wave["rows"] for wave in document["waves"]] == [5_000, most.rows]
    first = document["waves"][0]
    assert first["forecast_bytes"] == 5_000 * 10_000 + 7 * (5_000 // 64)
    assert (first["binding_term"], first["phase"], document["evidence"]) == ("forecast", "decoder backward", "forecast")
    held = with_safety(FORECAST_SAFETY.numerator, FORECAST_SAFETY.denominator, first["forecast_bytes"])
    assert held < first["required_bytes"] <= -(-4 * held // 3)


def test_the_most_rows_fit_and_one_more_does_not() -> None:
    for available in (10**6, 10**8, 10**9, 10**11):
        most = most_forecast_rows(NEEDS, available)
        assert most.rows == 0 or fits(most.price.required_bytes, available)
        assert not fits(forecast_wave(NEEDS, most.rows + 1).price.required_bytes, available)


@pytest.mark.usefixtures("made")
def test_the_table_is_whole_in_80_columns_and_the_picture_is_one(tmp_path: Path) -> None:
    picture = tmp_path / "needs.png"
    done = run("--model", "x.json", "--gpu", "1GiB", "--plot", str(picture))
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "…" not in done.output
    assert "Assumed: something." in done.output
    assert f"At most {most_forecast_rows(NEEDS, available_on(NEEDS, GIB)).rows:,} rows fit." in done.output
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.usefixtures("made")
def test_nothing_fits_is_said_and_exits_with_1() -> None:
    done = run("--model", "x.json", "--gpu", "1MiB")
    assert done.exit_code == 1
    assert "No wave fits" in done.output


def test_a_step_that_does_not_fit_is_said_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    step_bytes = available_on(NEEDS, GIB) + 1
    monkeypatch.setattr(model_needs, "needs_of", lambda model, **_: replace(NEEDS, optimizer_step_bytes=step_bytes))
    done = run("--model", "x.json", "--gpu", "1GiB")
    assert done.exit_code == 1 and "The optimizer's step does not fit" in done.output
    document = json.loads(run("--model", "x.json", "--gpu", "1GiB", "--json").output)
    assert document["optimizer_step_bytes"] == step_bytes and document["most_rows"] > 0


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere.json", "No such file"),
        ("nowhere", "neither a .json file, nor a folder, nor package.module:function"),
        ("not_there_at_all:make", "there is no module not_there_at_all"),
        ("adapters.forecast.errors:make", "has no make"),
        ("builtins:list", "makes a list, not a torch.nn.Module"),
    ],
)
def test_what_is_no_model_is_refused_in_words(model: str, said: str) -> None:
    done = run("--model", model, "--gpu", "1GiB")
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "no JSON object"),
        ("{}", "model_type"),
        ('{"model_type": "t5"}', "no causal decoder"),
    ],
)
def test_what_is_no_configuration_is_refused_in_words(tmp_path: Path, written: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(written)
    with pytest.raises(ForecastError, match=said):
        needs_of(str(path))


@pytest.mark.parametrize(("missing", "extra"), [("transformers", "hf"), ("peft", "hf")])
def test_a_missing_package_names_its_extra(
    config: Path, monkeypatch: pytest.MonkeyPatch, missing: str, extra: str
) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    done = run("--model", str(config), "--gpu", "1GiB", "--lora-rank", "2")
    assert done.exit_code == 2
    assert f"packed-pricing[{extra}]" in done.output
