"""Gradients kept over a batch: what a wave added is taken back exactly where that can be known, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from adapters.wave_loop.failure import BackwardQueue
from adapters.wave_loop.gradients import GradientKeeper

MANY = 1 << 20


def parameters() -> list[Parameter]:
    return [Parameter(torch.zeros(3)), Parameter(torch.zeros(2)), Parameter(torch.zeros(4), requires_grad=False)]


def add(value: Parameter, amount: float) -> None:
    """As backward does: in place where there is a gradient, anew where there is none."""
    with torch.no_grad():
        if value.grad is None:
            value.grad = torch.full_like(value, amount)
        else:
            value.grad.add_(amount)


def grads(values: list[Parameter]) -> list[list[float] | None]:
    return [None if value.grad is None else value.grad.tolist() for value in values]


def test_a_wave_that_made_gradients_is_undone_without_any_copy() -> None:
    values = parameters()
    keeper = GradientKeeper(values)
    keeper.before_wave()
    add(values[0], 1.0)
    assert keeper.undo_wave()
    assert grads(values) == [None, None, None]
    assert keeper.undo_wave(), "a wave that did nothing is undone too"


def test_a_wave_that_added_to_gradients_is_undone_from_copies_alone() -> None:
    values = parameters()
    add(values[0], 5.0)
    first = values[0].grad
    without, with_copies = GradientKeeper(values), GradientKeeper(values, copy_at_most_bytes=20)
    for keeper in (without, with_copies):
        keeper.before_wave()
    add(values[0], 1.0)
    add(values[1], 2.0)
    assert not without.undo_wave()
    assert grads(values) == [[6.0] * 3, [2.0] * 2, None], "nothing is changed where it cannot be known"
    assert with_copies.undo_wave()
    assert grads(values) == [[5.0] * 3, None, None]
    assert values[0].grad is first, "in place: what else holds the gradient sees it"


def test_copies_are_kept_of_what_is_small_enough_and_no_more() -> None:
    values = parameters()
    add(values[0], 5.0)
    keeper = GradientKeeper(values, copy_at_most_bytes=19)  # 5 numbers of 4 bytes need gradients
    keeper.before_wave()
    add(values[0], 1.0)
    assert not keeper.undo_wave()


def test_a_gradient_that_was_let_go_is_made_again_from_its_copy() -> None:
    values = parameters()
    add(values[0], 5.0)
    keeper = GradientKeeper(values, copy_at_most_bytes=MANY)
    keeper.before_wave()
    values[0].grad = None
    assert keeper.undo_wave()
    assert grads(values) == [[5.0] * 3, None, None]


def test_a_gradient_in_the_place_of_another_is_a_change_though_its_version_is_the_same() -> None:
    values = parameters()
    values[0].grad = torch.full((3,), 5.0)
    kept = values[0].grad
    keeper = GradientKeeper(values, copy_at_most_bytes=MANY)
    keeper.before_wave()
    values[0].grad = torch.full((3,), 7.0)
    assert values[0].grad._version == kept._version
    assert keeper.undo_wave()
    assert values[0].grad is kept and kept.tolist() == [5.0] * 3


def test_what_a_wave_did_not_touch_is_left_alone() -> None:
    values = parameters()
    add(values[0], 5.0)
    keeper = GradientKeeper(values)
    keeper.before_wave()
    add(values[1], 1.0)
    version = values[0].grad._version if values[0].grad is not None else -1
    assert keeper.undo_wave(), "no copy is needed of what the wave left alone"
    assert grads(values) == [[5.0] * 3, None, None]
    assert values[0].grad is not None and values[0].grad._version == version


def test_a_wave_is_not_undone_across_a_step_of_an_optimizer() -> None:
    values = parameters()
    keeper = GradientKeeper(values, copy_at_most_bytes=MANY)
    keeper.before_wave()
    with torch.no_grad():
        values[1].add_(1.0)
    assert not keeper.undo_wave()


@pytest.mark.parametrize("aside", [True, False])
def test_a_batch_starts_anew_where_it_began_empty(aside: bool) -> None:
    values = parameters()
    keeper = GradientKeeper(values)
    keeper.begin(aside=aside)
    add(values[0], 1.0)
    assert keeper.start_anew()
    assert grads(values) == [None, None, None]
    with torch.no_grad():
        values[0].add_(1.0)
    assert not keeper.start_anew(), "not across a step"


def test_what_was_there_is_set_aside_and_added_to_at_the_end() -> None:
    values = parameters()
    add(values[0], 5.0)
    keeper = GradientKeeper(values)
    keeper.begin(aside=True)
    assert grads(values) == [None, None, None]
    add(values[0], 1.0)
    add(values[1], 2.0)
    keeper.finish()
    assert grads(values) == [[6.0] * 3, [2.0] * 2, None]


def test_a_failed_batch_leaves_what_was_there_before() -> None:
    values = parameters()
    add(values[0], 5.0)
    keeper = GradientKeeper(values)
    keeper.begin(aside=True)
    add(values[0], 1.0)
    add(values[1], 2.0)
    keeper.roll_back()
    assert grads(values) == [[5.0] * 3, None, None]


def test_a_failed_batch_after_a_step_keeps_what_it_added() -> None:
    values = parameters()
    add(values[0], 5.0)
    keeper = GradientKeeper(values)
    keeper.begin(aside=True)
    add(values[0], 1.0)
    with torch.no_grad():
        values[0].add_(1.0)
    keeper.roll_back()
    assert grads(values) == [[6.0] * 3, None, None]


def test_without_setting_aside_what_was_there_forbids_to_start_anew() -> None:
    values = parameters()
    add(values[0], 5.0)
    keeper = GradientKeeper(values)
    keeper.begin(aside=False)
    assert not keeper.start_anew()
    keeper.roll_back()
    assert grads(values) == [[5.0] * 3, None, None]


# --- joins that run out of memory ------------------------------------------------------------------------------------


class Failing(torch.Tensor):
    """A gradient that cannot be added to for its first `failures` times."""

    failures = 0
    asked = 0

    def add_(self, other: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        self.asked += 1
        if self.asked <= self.failures:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 KiB.")
        return super().add_(other)


def set_aside(failures: int) -> tuple[GradientKeeper, list[Parameter], Failing]:
    values = parameters()
    kept = torch.full((3,), 5.0).as_subclass(Failing)
    kept.failures = failures
    values[0].grad = kept
    add(values[1], 3.0)
    keeper = GradientKeeper(values)
    keeper.begin(aside=True)
    add(values[0], 1.0)
    add(values[1], 2.0)
    return keeper, values, kept


def test_a_join_that_runs_out_of_memory_is_tried_once_more() -> None:
    keeper, values, kept = set_aside(1)
    keeper.finish()
    assert grads(values) == [[6.0] * 3, [5.0] * 2, None]
    assert kept.asked == 2, "and no join that went well is made again"


def test_a_join_that_runs_out_of_memory_twice_is_an_error_and_nothing_is_lost() -> None:
    keeper, values, kept = set_aside(2)
    with pytest.raises(torch.OutOfMemoryError):
        keeper.finish()
    assert kept.asked == 2
    keeper.roll_back()
    assert values[0].grad is kept and kept.tolist() == [5.0] * 3


def test_a_sparse_gradient_is_added_to_what_was_there() -> None:
    value = Parameter(torch.zeros(3))
    value.grad = torch.full((3,), 5.0)
    keeper = GradientKeeper([value])
    keeper.begin(aside=True)
    value.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([2.0]), (3,), check_invariants=True)
    keeper.finish()
    assert value.grad is not None and value.grad.to_dense().tolist() == [5.0, 7.0, 5.0]


def test_a_backward_s_leftovers_are_cleared_each_time_a_wave_broke_off() -> None:
    queue = BackwardQueue()
    for _ in range(3):
        queue.clear()
        assert not queue.is_suspect
        queue.is_suspect = True
    queue.clear()
    assert not queue.is_suspect
