"""Which ways of running backward count as seen, and that watching keeps nothing alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from adapters.torch_memory.backward import BackwardWatch, tensors_in


class Graph:
    """Two outputs on one trunk: trunk = tanh(x w), outputs trunk u and trunk v."""

    def __init__(self) -> None:
        self.w, self.u, self.v = (torch.ones(3, 3, requires_grad=True) for _ in range(3))
        trunk = torch.tanh(torch.ones(2, 3) @ self.w)
        self.outputs = [trunk @ self.u, trunk @ self.v]
        self.progress = 0
        self.watch = BackwardWatch(self.outputs, self._note)

    @property
    def loss(self) -> torch.Tensor:
        return self.outputs[0].sum() + self.outputs[1].sum()

    def _note(self) -> None:
        self.progress += 1


def _after_removal(graph: Graph) -> None:
    graph.watch.remove()
    graph.loss.backward()


SEEN: dict[str, Callable[[Graph], Any]] = {
    "backward of everything": lambda graph: graph.loss.backward(),
    "one output after the other": lambda graph: [output.sum().backward(retain_graph=True) for output in graph.outputs],
    "twice": lambda graph: [graph.loss.backward(retain_graph=True), graph.loss.backward()],
    "gradients of all weights without accumulating": lambda graph: torch.autograd.grad(
        graph.loss, [graph.w, graph.u, graph.v]
    ),
}
NOT_SEEN: dict[str, Callable[[Graph], Any]] = {
    "no backward": lambda graph: graph.loss,
    "a loss on detached outputs": lambda graph: graph.outputs[0].detach().requires_grad_().sum().backward(),
    "one output only": lambda graph: graph.outputs[0].sum().backward(),
    "stopped at the outputs": lambda graph: torch.autograd.grad(graph.loss, graph.outputs),
    "a part of the weights": lambda graph: graph.loss.backward(inputs=[graph.u, graph.v]),
    "after the watch was removed": _after_removal,
}


@pytest.mark.parametrize("run", SEEN.values(), ids=SEEN)
def test_a_graph_that_ran_through_is_seen(run: Callable[[Graph], Any]) -> None:
    graph = Graph()
    assert not graph.watch.has_run
    run(graph)
    assert graph.watch.has_run
    assert graph.progress >= 2


@pytest.mark.parametrize("run", NOT_SEEN.values(), ids=NOT_SEEN)
def test_a_graph_that_did_not_run_through_is_not_seen(run: Callable[[Graph], Any]) -> None:
    graph = Graph()
    run(graph)
    assert not graph.watch.has_run


def test_an_output_that_only_shares_what_another_ran_is_not_seen() -> None:
    """Both outputs hang on one trunk: running one runs every node next to a leaf, yet not the other's own."""
    trunk = torch.ones(2, requires_grad=True) * 2
    first, second = trunk * 3, trunk * 4
    watch = BackwardWatch([first, second], lambda: None)
    first.sum().backward(retain_graph=True)
    assert not watch.has_run
    second.sum().backward()
    assert watch.has_run


def test_backward_that_raises_on_the_way_is_not_seen() -> None:
    graph = Graph()

    def fail(_grad: torch.Tensor) -> None:
        raise RuntimeError("on the way")

    trunk_grad = graph.outputs[0].grad_fn
    assert trunk_grad is not None
    before_it = trunk_grad.next_functions[0][0]
    assert before_it is not None
    before_it.register_prehook(fail)
    with pytest.raises(RuntimeError, match="on the way"):
        graph.loss.backward()
    assert not graph.watch.has_run


def test_outputs_without_a_graph_are_no_backward() -> None:
    leaf = torch.ones(2, requires_grad=True)
    for outputs in ([], [torch.ones(2)], [leaf]):
        watch = BackwardWatch(outputs, lambda: None)
        leaf.sum().backward()
        assert not watch.has_run


class PassFirst(torch.autograd.Function):
    """Its second input gets no gradient at all, yet its node still runs."""

    @staticmethod
    def forward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first * second

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None


def test_undefined_gradients_still_run_the_graph() -> None:
    first, second = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    output = PassFirst.apply(first * 2, second * 3)  # type: ignore[no-untyped-call]
    watch = BackwardWatch([output], lambda: None)
    output.sum().backward()
    assert second.grad is None
    assert watch.has_run


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputed_segments_are_seen(use_reentrant: bool) -> None:
    weight = torch.ones(3, 3, requires_grad=True)
    start = torch.ones(2, 3, requires_grad=True)
    output = start
    for _ in range(3):
        output = checkpoint(lambda x: torch.tanh(x @ weight), output, use_reentrant=use_reentrant)
    watch = BackwardWatch([output], lambda: None)
    assert not watch.has_run
    output.sum().backward()
    assert watch.has_run
    assert weight.grad is not None


def test_watching_keeps_no_graph_alive() -> None:
    big = torch.ones(100)
    output = torch.ones(100, requires_grad=True) * big
    storage = weakref.ref(big.untyped_storage())
    watch = BackwardWatch([output], lambda: None)
    del big, output
    assert storage() is None
    assert not watch.has_run


def test_tensors_are_found_in_any_nesting() -> None:
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    assert [t.numel() for t in tensors_in({"x": [a, (b, None)], "y": c, "z": 3})] == [1, 2, 3]
