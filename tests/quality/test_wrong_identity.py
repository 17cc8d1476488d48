"""Mistakes in what a wave teaches (labels it lacked, outputs that were not there yet) turn a named property red."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from adapters.torch_memory import meter_for
from adapters.torch_memory.measurement import Measurement
from adapters.trainer_rank import head, labels
from tests.adapters.torch_memory import test_outputs
from tests.adapters.trainer_rank import test_labels
from tests.quality.wrong_kernels import WrongKernel, installed


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(head, "HEAD_CHUNK_ROWS", test_labels.CHUNK)
        yield


def half_of_a_logit(dtype_bytes: int, *, is_tempered: bool) -> int:
    return dtype_bytes


def nothing_lacks(*_of: object, **_more: object) -> int:
    return 0


def every_pass_is_full(requests: Any, positions: Any, k: int | None) -> int | None:
    return None if right_fullest(requests, positions, k) is None else head.HEAD_CHUNK_ROWS


def no_buffer(rows: int, projected_rows: int, logit_bytes: int, _buffer_bytes: int, vocabulary: int) -> int:
    return max(0, rows - projected_rows) * logit_bytes * vocabulary


right_fullest = labels._fullest_pass
WRONG_LABELS = {
    "half_of_a_logit": ("a workspace is charged one buffer a logit", "logit_bytes", half_of_a_logit),
    "nothing_lacks": ("a wave teaches its own peak", "unprojected_bytes", nothing_lacks),
    "every_pass_is_full": ("a pass over few labels counts as a chunk", "_fullest_pass", every_pass_is_full),
    "no_buffer_of_temperatures": ("a temperature takes no buffer", "lacking_bytes", no_buffer),
}


def outputs_never_follow(_self: Measurement, _size_bytes: int, _copied_bytes: int) -> None:
    """The peak less all outputs is all there is."""


def outputs_were_there(self: Measurement, size_bytes: int, _copied_bytes: int) -> None:
    self.outputs_bytes += size_bytes
    self.bare_bytes = max(self.bare_bytes, (self.allocated.peak_bytes or 0) - self.outputs_bytes)


def only_the_last_counts(self: Measurement, size_bytes: int, copied_bytes: int) -> None:
    self.bare_bytes = 0
    right_follow(self, size_bytes, copied_bytes)


right_follow = Measurement.outputs_follow
WRONG_OUTPUTS = {
    "outputs_never_follow": ("all outputs are taken off", outputs_never_follow),
    "outputs_were_there": ("outputs count from before they are made", outputs_were_there),
    "only_the_last_counts": ("what came before other outputs is forgotten", only_the_last_counts),
}


def is_found(strategy: st.SearchStrategy[Any], is_kept: Callable[[Any], bool], most_examples: int) -> bool:
    search = settings(
        max_examples=most_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        find(strategy, lambda drawn: not is_kept(drawn), settings=search)
    except NoSuchExample:
        return False
    return True


def outputs_are_told_apart(drawn: test_outputs.Phases) -> bool:
    with meter_for("cpu") as meter:
        look = test_outputs.forward(meter, drawn)
    return test_outputs.taught(look).compute_bytes == max(workspace for workspace, _ in drawn)


@pytest.mark.parametrize("name", WRONG_LABELS)
def test_wrong_labels_are_caught(name: str) -> None:
    mistake, attribute, wrong = WRONG_LABELS[name]
    owner = test_labels if attribute == "unprojected_bytes" else labels
    made = WrongKernel(name=name, mistake=mistake, caught_by="is_covered", patches={(owner, attribute): wrong})
    with installed(made):
        assert is_found(test_labels.waves, test_labels.is_covered, 300), f"nothing sees that {mistake}"


@pytest.mark.parametrize("name", WRONG_OUTPUTS)
def test_wrong_outputs_are_caught(name: str) -> None:
    mistake, wrong = WRONG_OUTPUTS[name]
    made = WrongKernel(
        name=name,
        mistake=mistake,
        caught_by="outputs_are_told_apart",
        patches={(Measurement, "outputs_follow"): wrong},
    )
    with installed(made):
        assert is_found(test_outputs.phases, outputs_are_told_apart, 300), f"nothing sees that {mistake}"


def test_right_ones_are_not() -> None:
    assert not is_found(test_labels.waves, test_labels.is_covered, 100)
    assert not is_found(test_outputs.phases, outputs_are_told_apart, 100)
