"""What users get: the sdist, and the wheel that is made from it, without the checkout beside them.

The wheel is installed into an environment of its own. That one borrows the test environment's libraries by a path at
the end of its own: torch is not installed a second time, and the checkout (an editable install) is not seen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRACE = ROOT / "spec" / "evidence" / "h200" / "dense-1.jsonl"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was made from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    copy = folder / "source"
    for part in ("pricing", "adapters"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def python(made: Path) -> Path:
    """The Python of an environment that has the wheel."""
    home = made / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=made)
    python = home / "bin" / "python"
    wheel = next(made.glob("*.whl"))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q", wheel, cwd=made)
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_has_what_it_needs_at_run_time_and_nothing_else(made: Path) -> None:
    names = zipfile.ZipFile(next(made.glob("*.whl"))).namelist()
    code = {name for name in names if ".dist-info/" not in name}

    assert {name.split("/")[0] for name in code} == {"pricing", "adapters"}
    for part in ("pricing", "adapters"):
        for path in (ROOT / part).rglob("*"):
            if path.suffix in {".py", ".typed", ".css", ".html"}:
                assert str(path.relative_to(ROOT)) in code
    assert not {name for name in code if name.split("/")[-1].startswith(("test_", "conftest"))}


def test_the_sdist_has_readme_licence_and_source(made: Path) -> None:
    with tarfile.open(next(made.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}

    assert {"README.md", "LICENSE", "pyproject.toml", "pricing/__init__.py", "pricing/py.typed"} <= names


def test_nobody_uploads_it_by_mistake(made: Path) -> None:
    archive = zipfile.ZipFile(next(made.glob("*.whl")))
    metadata = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()

    assert "Classifier: Private :: Do Not Upload" in metadata


def test_a_trace_is_replayed_by_the_installed_command(python: Path, tmp_path: Path) -> None:
    assert str(python.parents[1]) in run(python, "-c", "import pricing; print(pricing.__file__)", cwd=tmp_path)
    told = run(python.parent / "pricing", "backtest", TRACE, "--skip", "3", cwd=tmp_path)
    assert "frontier" in told


def test_a_trainer_runs_waves_from_the_installed_package(python: Path, tmp_path: Path) -> None:
    """The demo's own parts at a size that takes a second; the whole demo runs in the adapters' tests."""
    code = """
        import torch
        import adapters.trainer_rank
        from adapters.torch_memory import meter_for
        from adapters.trainer_rank import TrainerRank, demo
        from adapters.trainer_rank.decoder import Decoder, DecoderConfig
        print(adapters.trainer_rank.__file__)
        sizes = {"vocabulary": demo.VOCABULARY, "hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 8}
        model = Decoder(DecoderConfig(**sizes, feed_forward=16)).train()
        with meter_for("cpu") as meter:
            rank = TrainerRank(model, meter=meter, memory_bytes=1 << 27, forecast=False)
            for wave in rank.forward_micro_batches(demo.prompts(3)):
                demo.policy_loss(wave).backward()
                print("wave", wave.items, wave.stats.observed_bytes)
    """
    where, *waves = run(python, "-c", textwrap.dedent(code), cwd=tmp_path).splitlines()
    assert str(python.parents[1]) in where
    assert len(waves) >= 2 and all(re.fullmatch(r"wave range\(\d, \d\) \d+", wave) for wave in waves), waves


def test_another_distribution_of_our_name_is_told_in_one_sentence(python: Path, tmp_path: Path) -> None:
    """AdapterHub's package of that name, as far as it matters: an `__init__.py` that is imported before ours."""
    ours = run(python, "-c", "import adapters.torch_distributed as t; print(t.__path__[0])", cwd=tmp_path).strip()
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "__init__.py").write_text("")
    (tmp_path / "adapters" / "torch_distributed").symlink_to(ours)
    code = """
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            import adapters.torch_distributed
        print(*(str(one.message) for one in seen if "adapters" in str(one.message)), sep="\\n")
    """
    said = run(python, "-c", textwrap.dedent(code), cwd=tmp_path).splitlines()
    assert len(said) == 1
    assert "another distribution" in said[0] and "pip uninstall adapters" in said[0]


def test_every_adapter_looks_for_a_foreign_package_of_its_name() -> None:
    doors = sorted((ROOT / "adapters").glob("*/__init__.py"))
    assert len(doors) >= 5
    for door in doors:
        assert "\nwarn_of_foreign_adapters()\n" in door.read_text(), door
