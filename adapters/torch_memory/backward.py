"""Has backward been seen to run? A gradient wave whose backward runs later, in part, or never has a peak
nobody read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle


class BackwardWatch:
    """Watches the graphs of a wave's outputs until each has run from its output down to its leaves.

    Hooks go on the node of every output that requires grad (did the gradient reach it?) and on every node
    next to a leaf (did it get through?). Not on the leaves themselves: `torch.autograd.grad` computes
    gradients without running them. So stopping at the outputs, running some outputs only,
    `backward(inputs=...)` on a part, or raising on the way all leave nodes pending. Under reentrant
    checkpointing the leaves of the outer graph are watched.

    The watch holds no node and no tensor: it never keeps a graph alive. `remove` it when the wave ends.
    """

    def __init__(self, outputs: Iterable[torch.Tensor], on_progress: Callable[[], None]) -> None:
        """`on_progress` is called before the first output's node runs and once every watched node has run, from the
        thread that runs backward. It must not raise."""
        roots = list(dict.fromkeys(output.grad_fn for output in outputs if output.grad_fn is not None))
        watched = _watched_nodes(roots)
        self._on_progress = on_progress
        self._has_begun = False
        self._pending = set(range(len(watched)))
        self._watched_nodes = len(watched)
        self._handles: list[RemovableHandle] = [root.register_prehook(self._begins) for root in roots]
        self._handles += [node.register_hook(self._marker(key)) for key, node in enumerate(watched)]

    @property
    def has_run(self) -> bool:
        """Whether every watched node has run. False where no output has a graph: there is no backward to be
        seen."""
        return self._watched_nodes > 0 and not self._pending

    def remove(self) -> None:
        """Take the hooks off. What runs later was outside the wave and is not seen."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begins(self, _grad_outputs: object) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._on_progress()

    def _marker(self, key: int) -> Callable[[object, object], None]:
        def ran(_grad_inputs: object, _grad_outputs: object) -> None:
            self._pending.discard(key)
            if not self._pending:
                self._on_progress()

        return ran


class AccumulationWatch:
    """Watches backward by the gradients that reach parameters: for waves whose forward nobody reports.

    A hook after accumulation, on every parameter that trains, says that a backward is under way; the engine is then
    asked to call when that backward is over. Nothing is known of the graph, so a loss that leaves rows of the wave out
    is not noticed, as `BackwardWatch` would; a wave without a backward, one whose backward raised, and one that only
    used `torch.autograd.grad` (which reaches no parameter) are.

    The watch keeps no graph alive. `remove` it when the wave ends.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], on_progress: Callable[[], None]) -> None:
        """`on_progress` is called when a backward first reaches a parameter and when it is over, from a thread of
        autograd. It must not raise."""
        self._on_progress = on_progress
        self._running: set[int] = set()
        self._has_ended = False
        self._is_removed = False
        self._handles: list[RemovableHandle] = [
            value.register_post_accumulate_grad_hook(self._reached) for value in parameters if value.requires_grad
        ]

    @property
    def has_run(self) -> bool:
        """Whether a backward reached a parameter and came to its end, and none is under way."""
        return self._has_ended and not self._running

    def remove(self) -> None:
        """Take the hooks off. What runs later was outside the wave and is not seen."""
        self._is_removed = True
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _reached(self, _parameter: torch.Tensor) -> None:
        task: int = torch._C._current_graph_task_id()  # reentrant checkpoints run backwards inside a backward
        if task in self._running:
            return
        self._running.add(task)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: self._ended(task))
        self._on_progress()

    def _ended(self, task: int) -> None:
        self._running.discard(task)
        self._has_ended = True
        if not self._is_removed and not self._running:
            self._on_progress()


def tensors_in(outputs: object) -> Iterator[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts, in order. Other values are passed over."""
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, (tuple, list)):
        for output in outputs:
            yield from tensors_in(output)
    elif isinstance(outputs, dict):
        for output in outputs.values():
            yield from tensors_in(output)


def _watched_nodes(roots: list[Node]) -> list[Node]:
    """The roots and the nodes next to a leaf, each once. One pass over the graph."""
    watched = dict.fromkeys(roots)
    visited: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in visited:
            continue
        visited.add(node)
        following = [child for child, _ in node.next_functions if child is not None]
        if not following or any(_is_leaf(child) for child in following):
            watched[node] = None
        stack.extend(child for child in following if not _is_leaf(child))
    return list(watched)


def _is_leaf(node: Node) -> bool:
    """Whether `node` accumulates the gradient of a leaf."""
    return type(node).__name__ == "AccumulateGrad"
