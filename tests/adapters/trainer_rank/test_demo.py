"""The demonstration runs, and its second run starts warm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adapters.trainer_rank import demo


def test_the_second_run_starts_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["demo", "--device", "cpu", "--prompts", "2", "--profiles", str(tmp_path / "p.json")]
    )
    demo.main()
    first, second = capsys.readouterr().out.split("run 2")
    assert "starts cold (nothing learned yet)" in first
    assert first.splitlines()[3].endswith(("cold", "forecast"))
    assert "starts warm" in second
    overs = re.findall(r"([+-]\d+)%", first + second)
    assert len(overs) >= 3
    assert all(over.startswith("+") for over in overs)
