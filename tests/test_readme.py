"""What the documents say can be run as written."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pricing
from adapters.torch_memory import meter_for
from pricing.cli.app import pricing as command_line
from pricing.evidence.backtest import Order, backtest
from pricing.evidence.trace import read_trace
from pricing.kernel.price import Quantity
from tests.cli.test_forecast import CONFIG
from tests.records.recorded_run import record_run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TRACES = {
    name: read_trace(ROOT / "spec" / "evidence" / "h200" / f"{name}-1.jsonl") for name in ("dense", "moe", "gdn_moe")
}


def test_the_python_of_the_readme_runs_as_shown() -> None:
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)

    assert tried >= 6 and failed == 0


def test_the_example_of_the_package_runs_as_shown() -> None:
    failed, tried = doctest.testmod(pricing)

    assert tried >= 4 and failed == 0


@pytest.mark.parametrize("law", pricing.LAWS)
def test_the_table_of_the_readme_is_what_the_backtest_says(law: str) -> None:
    row = re.search(rf"^\| `{law}`.*$", README, re.MULTILINE)
    assert row, f"no row for {law}"
    scores = [backtest(name, waves, pricing.LAWS[law], skip=3).score for name, waves in TRACES.items()]
    medians = [f"+{float(100 * score.over_median):.0f} %" for score in scores if score.over_median is not None]

    assert [cell.strip() for cell in row[0].split("|")[2:-1]] == [*medians, str(sum(score.under for score in scores))]


def test_footprints_are_priced_as_the_readme_says() -> None:
    medians = []
    for name in ("dense-23", "moe-21"):
        waves = read_trace(ROOT / "spec" / "evidence" / "h200-physical" / f"{name}.jsonl")
        score = backtest(name, waves, pricing.LAWS["frontier"], quantity=Quantity.FOOTPRINT, skip=3).score
        assert score.over_median is not None and score.under == 0
        medians.append(f"+{float(100 * score.over_median):.0f} %")
    assert f"| `frontier`, of footprints (`dense-23`, `moe-21`) | {' | '.join(medians)} | | 0 |" in README


def test_the_waves_that_the_quick_look_replays_are_as_many_as_said() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^(?:FOOTPRINT_)?TRACES := (?:\$\(sort \$\(wildcard )?([^)\n]*)", makefile, re.MULTILINE)
    paths = [path for pattern in " ".join(named).split() for path in sorted(ROOT.glob(pattern))]
    assert f"replays {sum(len(read_trace(path)) for path in paths)} waves" in README


def test_the_number_of_waves_that_fall_short_in_descending_order_is_as_said() -> None:
    under = {
        backtest(name, waves, pricing.LAWS[law], skip=1, order=Order.DESCENDING).score.under
        for name, waves in TRACES.items()
        for law in ("packed", "warm")
    }

    assert f"{min(under)} or {max(under)} times a trace" in README


def test_the_commands_of_the_readme_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, with their own file names, from a folder that has the evidence and a run's records."""
    for folder in ("spec", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    record_run(tmp_path / "records", refused=(20,), out_of_memory=(30,), under=(35,))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))  # the reader's own model, and their own package
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text("from examples.plain_module import PlainDecoder as make\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^    pricing (.*?)(?:#.*)?$", README, re.MULTILINE)

    assert len(lines) >= 4
    for line in lines:
        arguments = [path for text in line.split() for path in (sorted(map(str, Path().glob(text))) or [text])]
        result = CliRunner().invoke(command_line, arguments)
        refuses = line.startswith("plan ") and " refused, of " in result.stdout
        assert result.exit_code == int(refuses), f"pricing {line}\n{result.output}"
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    given = {"config.json", "my_package/"}
    left = {path.name + "/" * path.is_dir() for path in tmp_path.iterdir() if not path.is_symlink()} - given
    assert {"profile.json", "plan.png", "report.html", "time.png", "records/"} <= left
    assert {f"/{name}" for name in left} <= set(ignored), "what the commands leave behind is ignored by git"


def test_a_long_trace_is_priced_as_said() -> None:
    """Short traces flatter the warm law: their dear first wave does not come again."""
    said = re.search(r"repeated 60 times are priced by it at (.*?), as by `packed`", README, re.DOTALL)
    assert said is not None
    medians = {
        law: [backtest(name, waves * 60, pricing.LAWS[law], skip=3).score.over_median for name, waves in TRACES.items()]
        for law in ("warm", "packed")
    }
    shown = {law: [f"+{float(100 * (over or 0)):.0f} %" for over in found] for law, found in medians.items()}
    assert re.findall(r"\+\d+ %", said[1]) == shown["warm"] == shown["packed"]
    assert {len(waves) for waves in TRACES.values()} == {55} and "55 waves each" in README


def test_the_two_blocks_price_one_wave_as_said(tmp_path: Path) -> None:
    line = re.search(r"^    pricing explain (.*?)(?: *#.*)?$", README, re.MULTILINE)
    assert line is not None
    profile = str(tmp_path / "profile.json")
    trace = ROOT / "spec/evidence/h200/dense-1.jsonl"
    assert CliRunner().invoke(command_line, ["learn", str(trace), "-o", profile]).exit_code == 0
    arguments = ["explain", *(profile if word == "profile.json" else word for word in line[1].split()), "--json"]
    priced = {
        law: json.loads(CliRunner().invoke(command_line, [*arguments, "--law", law]).stdout)["required_bytes"]
        for law in ("warm", "frontier")
    }
    said = f"it says {priced['warm'] / 2**30:.2f} GiB, where the block above says 10,527 MiB"
    assert f"It prices the same wave at {priced['frontier'] / 2**30:.2f} GiB. Add `--law warm` and {said}" in README


def test_the_first_example_runs_on_a_module_of_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The five minutes: as written, but for the size of the device that a CPU stands for."""
    import torch
    from torch import nn

    block = README.split("<!-- five minutes -->")[1].split("\n\nEach micro-batch")[0]
    assert 'MicroBatches(model, profiles="profiles.json")' in block
    written = block.replace('profiles="profiles.json")', f'profiles="profiles.json", memory_bytes={1 << 26})')
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50))
    ran: list[int] = []

    def loss(items: list[list[int]]) -> torch.Tensor:
        ran.append(len(items))
        tokens = torch.tensor([token for item in items for token in item])
        return nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:])

    sequences = [[token % 50 for token in range(at, at + 100)] for at in range(12)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": model, "loss": loss, "sequences": sequences, "optimizer": optimizer}
    with meter_for("cpu") as meter:  # closed at the end: other tests of this process count too
        written = written.replace("MicroBatches(model,", "MicroBatches(model, meter=meter,")
        exec(textwrap.dedent(written), names | {"meter": meter})
    assert ran[0] == 1 and sum(ran) == 12 and len(ran) < 12
    assert (tmp_path / "profiles.json").exists()


def test_what_the_readme_imports_is_there() -> None:
    imports = re.findall(r"^ {4}from ([\w.]+) import ([\w, ]+)$", README, re.MULTILINE)
    imports += re.findall(r"`from ([\w.]+) import ([\w, ]+)`", README)
    assert len(imports) >= 5
    for module, names in imports:
        if module != "adapters.art":  # needs ART's own package
            for name in names.split(", "):
                assert hasattr(importlib.import_module(module), name), f"from {module} import {name}"


def test_the_example_batch_runs_as_the_number_of_waves_that_is_said(tmp_path: Path) -> None:
    profile = str(tmp_path / "profile.json")
    trace, items = ROOT / "spec/evidence/h200/dense-1.jsonl", ROOT / "examples/rollouts.jsonl"
    run = CliRunner().invoke
    assert run(command_line, ["learn", str(trace), "-o", profile]).exit_code == 0
    waves = {}
    for law in ("warm", "frontier"):
        arguments = ["plan", str(items), "--profile", profile, "--budget", "12GiB", "--law", law, "--json"]
        plan = json.loads(run(command_line, arguments).stdout)
        waves[law] = sum(wave["verdict"] != "refuse" for wave in plan["waves"])

    as_said = f"{waves['frontier']} waves; by the `warm` law they would be {waves['warm']}:"
    assert f"The {plan['items']} items of the example run as {as_said}" in README


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "spec/evidence/README.md", "tests/data/peer/README.md"]
)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_the_makefile_has_every_target_that_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", README, re.MULTILINE))

    assert {"run", "test"} <= named <= targets
