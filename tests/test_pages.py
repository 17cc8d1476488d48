"""The pages in docs/ run as written: the loop is the unsplit loop, the token budget keeps within its device."""

from __future__ import annotations

import copy
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.torch_memory import PeakMeter
from adapters.torch_memory.testing import LimitedCounter
from benchmarks.any_trainer.sft import llama, packed_loss
from pricing import LAWS

DOCS = Path(__file__).parents[1] / "docs"
MOST_LINES = 20


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def code_lines(block: str) -> int:
    return sum(1 for line in block.splitlines() if line.strip() and not line.strip().startswith("#"))


def some_steps(count: int, seed: int = 0) -> list[list[list[int]]]:
    draw = random.Random(seed)
    return [[[draw.randrange(96) for _ in range(draw.randint(16, 200))] for _ in range(24)] for _ in range(count)]


def unsplit(model: Any, steps: Any) -> Any:
    """The same steps, each batch in one padded tensor."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for batch in steps:
        longest = max(map(len, batch))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch])
        labels = torch.tensor([row + [-100] * (longest - len(row)) for row in batch])
        tokens = sum(len(row) - 1 for row in batch)
        model(input_ids=ids, labels=labels, num_items_in_batch=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def test_your_own_loop_is_the_unsplit_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loop, handed_over = blocks("your-own-loop.md")
    assert code_lines(loop) <= MOST_LINES
    model, steps = llama(), some_steps(4)
    wanted = dict(unsplit(copy.deepcopy(model), steps).named_parameters())
    counter = LimitedCounter(12 << 20)
    with PeakMeter(counter) as meter:
        counter.track(model.parameters())
        page: dict[str, Any] = {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=1.0),
            "steps": steps,
            "device": {"memory_bytes": counter.limit_bytes, "meter": meter},
        }
        exec(compile(loop, "your-own-loop.md", "exec"), page)
        for name, value in model.named_parameters():
            torch.testing.assert_close(value, wanted[name], rtol=1e-4, atol=1e-5)
        assert counter.raised == 0 and (tmp_path / "profiles.json").exists()
        assert len(page["batches"].profiles) == 1

        exec(compile(handed_over, "your-own-loop.md", "exec"), page)
        after = {name: value.grad.clone() for name, value in model.named_parameters()}
    own = copy.deepcopy(model)
    own.zero_grad()
    batch, tokens = page["batch"], page["tokens"]
    for sequence in batch:
        own(
            input_ids=torch.tensor([sequence]), labels=torch.tensor([sequence]), num_items_in_batch=tokens
        ).loss.backward()
    for name, value in own.named_parameters():
        torch.testing.assert_close(after[name], value.grad, rtol=1e-4, atol=1e-5)


def test_a_trainer_of_the_token_budget_stays_within_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from adapters.micro_batches import MicroBatches

    monkeypatch.chdir(tmp_path)
    ask, cut = blocks("token-budget.md")
    model, steps = llama(), some_steps(6)
    counter = LimitedCounter(12 << 20)
    with PeakMeter(counter) as meter:
        counter.track(model.parameters())
        learning = MicroBatches(
            model, meter=meter, memory_bytes=counter.limit_bytes, profiles="profiles.json", law="frontier"
        )
        for batch in steps[:3]:
            for micro in learning.split(batch):
                with micro:
                    packed_loss(model, micro.items).backward()
        page: dict[str, Any] = {
            "available": counter.limit_bytes - counter.allocated(),
            "law": LAWS["frontier"],
        }
        exec(compile(ask, "token-budget.md", "exec"), page)
        exec(compile(cut, "token-budget.md", "exec"), page)
        assert "rows;" in capsys.readouterr().out
        most_tokens = page["most_tokens"]
        assert max(len(row) for batch in steps for row in batch) < most_tokens < sum(map(len, steps[3]))
        used = []
        for batch in steps[3:]:
            for own in page["cut"](batch, most_tokens):
                counter.reset_peak()
                packed_loss(model, own).backward()
                used.append(counter.peaks()[0] / counter.limit_bytes)
        assert counter.raised == 0
        assert max(used) > 0.75, "the number is no timid one"
        far_beyond = [[1] * (most_tokens // 2)] * 3
        with pytest.raises(torch.OutOfMemoryError):
            packed_loss(model, far_beyond).backward()
