"""Running a model without a device and without arithmetic, and counting what it would keep alive.

Every tensor is fake (`torch._subclasses.FakeTensorMode`): it has a shape, a type and a storage of no bytes in memory
but of a known size. The project's own storage counter counts those storages as they come and go, through forward,
loss, backward and whatever is recomputed in it.

Whole numbers can be looked up, because shapes may depend on them: what a program derives from known numbers
(positions, tables of segments) is remembered as the operation that gives it, and computed when a shape asks. What
comes out of unknown numbers by a choice (the top-k of a router) gets values by a named assumption, `Routing`; the rest
of the routing (sorting rows by expert, counting them, cutting them into pieces) then follows from those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from adapters.torch_memory.cpu_counter import StorageCounter
from pricing.kernel.quantities import ceil_div

CUDA_BLOCK_BYTES: Final = 512
"""The caching allocator hands out multiples of this."""


class Target(StrEnum):
    """Whose memory is forecast."""

    CPU = "cpu"
    """The storage counter's: bytes as they are, attention by the explicit mask."""
    CUDA = "cuda"
    """The caching allocator's: blocks of 512 B, fused norms, FlexAttention, and the scratch of known kernels."""


class Routing(StrEnum):
    """What a choice among scores that nobody knows is taken to be: the one thing that a forecast has to assume."""

    BALANCED = "balanced"
    """Each expert gets as many rows as the next."""
    ONE_SIDED = "one_sided"
    """Every row goes to the same experts: the widest pieces that the shapes allow."""


_aten: Final = torch.ops.aten
_CUDA_SCRATCH_OF_INPUT: Final = frozenset({_aten.logsumexp.default})
"""Operations whose CUDA kernel takes a buffer of its input's size and gives it back before it returns."""
_FACTORIES: Final = frozenset({"aten::arange", "aten::zeros", "aten::ones", "aten::full", "aten::empty"})
_SHAPED_BY_VALUES: Final = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::equal",
        "aten::is_nonzero",
        "aten::nonzero",
        "aten::bincount",
        "aten::masked_select",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
        "aten::repeat_interleave",
    }
)
_GROUPED_MM: Final = getattr(_aten, "_grouped_mm", None) and _aten._grouped_mm.default
_CHOICES: Final = frozenset({"aten::topk", "aten::sort", "aten::argsort", "aten::argmax", "aten::argmin", "aten::max"})
"""Operations on scores whose whole-number results are given values by the assumption."""


class _Numbers:
    """Whole numbers that can be computed: the operation that gives them and what it needs, or the numbers."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def value(self) -> Any:
        if self._make is not None:
            self._value, self._make = self._make(), None
        return self._value


class FakeRun(StorageCounter):
    """The storage counter over fake tensors: what runs inside `running` costs no memory and no arithmetic.

    target: whose allocator is counted. routing: see `Routing`; `chose` says whether it was needed.
    """

    def __init__(self, target: Target, routing: Routing = Routing.BALANCED) -> None:
        super().__init__()
        self.target = target
        self.routing = routing
        self.chose = False
        self.operations = 0
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._numbers: Any = WeakTensorKeyDictionary()

    @contextmanager
    def running(self) -> Iterator[FakeRun]:
        """Fake everything inside. Modes that were active before (such as a live CPU meter) see nothing of it."""
        with _disable_current_modes(), torch.autograd.set_multithreading_enabled(False), self.fake_mode, self:
            yield self

    def take_peak(self) -> int:
        """The peak since the last call, in bytes; a new one starts at what is live."""
        peak = self.peaks()[0]
        self.reset_peak()
        return peak

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)
        if schema is None or schema.name.startswith("prim::"):
            return func(*args, **kwargs)
        self.operations += 1
        if self.target is Target.CUDA and func in _CUDA_SCRATCH_OF_INPUT:
            self._note_scratch(args[0].numel() * args[0].element_size())
        numbers = self._derived(func, schema, args, kwargs)
        if numbers is not None and schema.name in _SHAPED_BY_VALUES:
            result = self._faked(numbers.value())
        else:
            args = self._without_masks(func, args)
            result = _grouped_product(*args, **kwargs) if func is _GROUPED_MM else func(*args, **kwargs)
            if schema.name in _CHOICES and numbers is None and args[0].is_floating_point():
                self._choose(args, result)
            self._remember(schema, result, numbers)
        self._book(func, args, kwargs, result)
        return result

    def _resize(self, key: int, size_bytes: int) -> int:
        """A CUDA allocator hands out whole blocks."""
        if self.target is Target.CPU:
            return size_bytes
        return ceil_div(size_bytes, CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES

    def _note_scratch(self, size_bytes: int) -> None:
        """A buffer that lives inside one kernel."""
        self._bury()
        self._peak_bytes = max(self._peak_bytes, self._live_bytes + size_bytes)

    # Whole numbers --------------------------------------------------------------------------------------------------

    def _derived(self, func: Any, schema: Any, args: Any, kwargs: Any) -> _Numbers | None:
        """The whole numbers that an operation gives, if all that it needs is known."""
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(leaf.is_floating_point() or leaf.is_complex() for leaf in leaves):
            return None
        if not leaves and not _makes_whole_numbers(schema.name, args, kwargs):
            return None
        known = [self._known_numbers(leaf) for leaf in leaves]
        if any(found is None for found in known):
            return None
        slots = tree_map_only(Tensor, self._known_numbers, (args, kwargs))

        def compute() -> Any:
            real_args, real_kwargs = tree_map_only(_Numbers, _Numbers.value, slots)
            with _disable_current_modes():
                if schema.is_mutable:  # older readers keep what they saw
                    real_args, real_kwargs = tree_map_only(Tensor, Tensor.clone, (real_args, real_kwargs))
                return func(*real_args, **real_kwargs)

        return _Numbers(compute)

    def _known_numbers(self, tensor: Tensor) -> _Numbers | None:
        if not self.fake_mode.is_our_fake(tensor):
            return _Numbers(lambda: tensor)
        known: _Numbers | None = self._numbers.get(tensor)
        return known

    def _remember(self, schema: Any, result: Any, numbers: _Numbers | None) -> None:
        """Keep what is known of the results, and forget what an operation in place has made unknown."""
        for index, leaf in enumerate(tree_leaves(result)):
            if not isinstance(leaf, Tensor) or leaf.is_floating_point() or leaf.is_complex():
                continue
            if numbers is not None:
                self._numbers[leaf] = _Numbers(lambda index=index: tree_leaves(numbers.value())[index])  # type: ignore[misc]
            elif schema.is_mutable:
                self._numbers.pop(leaf, None)

    def _choose(self, args: Any, result: Any) -> None:
        """Give the indices that a choice among unknown scores returns values by the assumption."""
        candidates = args[0].shape[-1] if args[0].dim() else 1
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.dtype is torch.int64:
                self.chose = True
                shape, is_row = tuple(leaf.shape), leaf.dim() == args[0].dim()
                self._numbers[leaf] = _Numbers(lambda s=shape, r=is_row: _choice(s, r, candidates, self.routing))  # type: ignore[misc]

    def _without_masks(self, func: Any, args: Any) -> Any:
        """Indexing by a known mask, written as indexing by the rows that it lets through."""
        if func is not _aten.index.Tensor:
            return args
        indices: list[Any] = []
        for index in args[1]:
            known = None if index is None or index.dtype is not torch.bool else self._known_numbers(index)
            if known is None:
                indices.append(index)
                continue
            with _disable_current_modes():
                rows = torch.nonzero(known.value(), as_tuple=True)
            indices.extend(self._faked(part) for part in rows)
        return (args[0], indices, *args[2:])

    def _faked(self, real: Any) -> Any:
        """Fake tensors with these values, of these shapes."""

        def fake(value: Tensor) -> Tensor:
            with _disable_current_modes(), self.fake_mode:
                shown = torch.empty(value.shape, dtype=value.dtype)
            if not value.is_floating_point():
                self._numbers[shown] = _Numbers(lambda: value)
            return shown

        return tree_map_only(Tensor, fake, real)


def _makes_whole_numbers(name: str, args: Any, kwargs: Any) -> bool:
    """Whether an operation without tensors to work on makes whole numbers of known values."""
    if name not in _FACTORIES:
        return False
    dtype = kwargs.get("dtype")
    if dtype is None:
        return name == "aten::arange" and all(isinstance(value, int) for value in args)
    return not (dtype.is_floating_point or dtype.is_complex)


def _choice(shape: tuple[int, ...], is_row: bool, candidates: int, routing: Routing) -> Tensor:
    """Indices below `candidates`: those of a row (the last dimension) differ; or one for each element."""
    with _disable_current_modes():
        numbers = torch.arange(torch.Size(shape).numel())
        if routing is Routing.ONE_SIDED:
            numbers = numbers % shape[-1] if is_row and shape else torch.zeros_like(numbers)
        return (numbers % max(1, candidates)).reshape(shape)


def _grouped_product(
    left: Tensor,
    right: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """The result of `torch._grouped_mm`, in every type (PyTorch's own rule for its shape knows bfloat16 only)."""
    groups = () if offs is None else (offs.shape[0],)
    shape = (left.shape[-2], right.shape[-1])
    if left.dim() == right.dim():
        shape = (*(groups if left.dim() == 2 else left.shape[:1]), *shape)
    return left.new_empty(shape, dtype=out_dtype or left.dtype)
