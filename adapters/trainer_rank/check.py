"""The check at binding: packed rows against the model's ordinary forward, on the very model.

A small tree of requests (branches, branches of branches, a request that ends inside another, a lone one) runs packed;
each request then runs on its own through the ordinary forward. Windows longer than the tree are shortened for both
runs: the same code reads them, and every packed forward asks it again at its true size. Where a device has a
kernel of its own for longer waves, the tree is long enough to use it.

Neither run may draw a random number. What is compared, segment by segment: log-probabilities in root mean square, and
the gradient of a random mix of them by the input embeddings, which passes through every layer. What two right runs may
differ by is rounding, so the tolerance comes from the dtype. With u its unit of rounding and n residual additions (two
a layer and the last norm), each run carries an error of about u * sqrt(n) of the spread of the log-probabilities, since
roundings are independent.
Sixteen-bit runs get twice that, and their gradients, which are rounded on the way back as well, four times that again.
Thirty-two-bit runs get 64 times, and their gradients 16 times that again, which costs nothing: what is wrong is wrong
by a percent or more. An fp64 model counts as fp32, because models compute rotary tables, norms and softmax in fp32
whatever their dtype.

Nothing is left behind: no gradient, no changed setting, no drawn random number, and memory of one short forward.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from adapters.trainer_rank.attention import BLOCK_ROWS, Reach
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.head import target_log_probs
from adapters.trainer_rank.packed_model import PackedModel
from adapters.trainer_rank.refusals import DRAWS_THAT_CHANGE_NOTHING
from adapters.trainer_rank.rows import Ints, PackedRows, tree_rows, unshared_rows

SEGMENT_ROWS = (9, 6, 5, 7, 4, 5, 3, 8)
SEGMENT_PARENTS = (-1, 0, 0, 1, 1, -1, 5, -1)
"""The tree: a prompt with two branches, one of which branches again; a prompt with one branch; a lone request."""

REQUEST_SEGMENTS = (0, 3, 4, 2, 6, 5, 7)
"""The segment that each request ends with: leaves, and two prompts of others."""

SHORT_REACH = 5
"""Windows are shortened to this many rows: less than a branch, so that they end in it, in its prompt and between."""

TARGETS = 4
"""Log-probabilities looked at in every row."""

KEPT_ROWS = 24
"""Rows looked at in every request, at most."""


@runtime_checkable
class OrdinaryModel(Protocol):
    """A `PackedModel` that also has an ordinary forward to be compared with."""

    layers: list[nn.Module]
    last_reaches: frozenset[Reach]
    last_attention_calls: int

    def ordinary_logits(self, tokens_N: Tensor, kept_rows: Tensor) -> Tensor:
        """Logits of some rows by the ordinary forward of one request: [kept, V]."""

    def input_embeddings(self) -> nn.Module: ...

    def reaches_at_most(self, size: int) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """How far two runs lie apart: the worst segment's figure, what it may be, and the largest single difference."""

    worst: float
    tolerance: float
    largest: float

    @property
    def is_too_large(self) -> bool:
        return not self.worst <= self.tolerance  # a NaN is too large


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What the check saw. `gradient` is None where nothing trains, or where no embedding module is known."""

    log_probs: Discrepancy
    gradient: Discrepancy | None


def check_packed_execution(model: PackedModel, module: object) -> CheckReport:
    """Compare packed and ordinary execution of `model`, whose parameters `module` has.

    A `PackedModel` of the caller's own has no other forward; each request's own packed forward stands for it.
    Raises `UnsupportedModelError` with the difference and the first layer in which hidden states part.
    """
    parameters = list(module.parameters()) if isinstance(module, nn.Module) else []
    device = parameters[0].device if parameters else torch.device("cpu")
    is_trained = any(value.requires_grad for value in parameters)
    name = model.model_facts().name
    with _without_parameter_gradients(parameters):
        try:
            case = _Case(model, module, device)
            with case.short_reaches():
                with _no_number_drawn(module, device):
                    report = case.report(grads=is_trained)
                for what, difference in (("log-probabilities", report.log_probs), ("gradients", report.gradient)):
                    if difference is not None and difference.is_too_large:
                        raise UnsupportedModelError(
                            f"packed and ordinary {what} differ by {difference.worst:.3g} where rounding explains "
                            f"{difference.tolerance:.3g} (largest difference {difference.largest:.3g}); "
                            f"{case.where_they_part()}"
                        )
        except torch.OutOfMemoryError:
            raise
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{name} cannot run shared rows: {error}") from error
        except Exception as error:
            # PyTorch before 2.13 leaves a checkpoint's hooks on while a frame of a forward that raised lives, and the
            # traceback keeps it: the next forward of any model would be saved and recomputed by them.
            traceback.clear_frames(error.__traceback__)
            if "PackedMask" in str(error):
                raise UnsupportedModelError(
                    f"{name} cannot run shared rows: its attention is code of its own, not transformers' interface"
                ) from error
            first_line = (str(error).splitlines() or [""])[0][:200]
            raise UnsupportedModelError(
                f"{name} cannot run shared rows: its packed forward raised {type(error).__name__}: {first_line}"
            ) from error
    return report


class _Case:
    """One check: the tree, what is looked at, and the two runs."""

    def __init__(self, model: PackedModel, module: object, device: torch.device) -> None:
        self.model = model
        self.module = module
        self.device = device
        self.ordinary = model if isinstance(model, OrdinaryModel) else None
        self._is_sharded = isinstance(module, nn.Module) and _is_sharded(list(module.parameters()))
        self.times = -(-3 * BLOCK_ROWS // sum(SEGMENT_ROWS)) if device.type == "cuda" else 1
        generator = np.random.default_rng(0)
        vocabulary = model.model_facts().vocabulary
        self.rows = tree_rows(
            [generator.integers(0, vocabulary, rows * self.times) for rows in SEGMENT_ROWS],
            SEGMENT_PARENTS,
            REQUEST_SEGMENTS,
            device,
        )
        self.kept = [_kept_rows(self.rows, own) for own in self.rows.request_positions]
        self.targets = [generator.integers(0, vocabulary, (len(kept), TARGETS)) for kept in self.kept]
        self.weights = [
            torch.from_numpy(generator.standard_normal(targets.shape)).to(device) for targets in self.targets
        ]

    def short_reaches(self) -> AbstractContextManager[None]:
        return nullcontext() if self.ordinary is None else self.ordinary.reaches_at_most(SHORT_REACH * self.times)

    def report(self, *, grads: bool) -> CheckReport:
        packed, packed_gradient = self._packed(grads)
        self._require_exercised()
        plain, plain_gradient = self._plain(grads)
        spread, size = float(plain.std()), float(plain.abs().max())
        share = self._rounding_share()
        apart = (packed - plain).abs()
        segments = np.repeat(
            np.concatenate(
                [
                    self.rows.segment_ids[own[kept]]
                    for own, kept in zip(self.rows.request_positions, self.kept, strict=True)
                ]
            ),
            TARGETS,
        )
        worst = max(float(apart[torch.from_numpy(segments == one)].square().mean().sqrt()) for one in set(segments))
        tolerance = share * spread + 8 * torch.finfo(torch.float32).eps * size
        log_probs = Discrepancy(worst, tolerance, float(apart.max()))
        if packed_gradient is None or plain_gradient is None:
            return CheckReport(log_probs, None)
        return CheckReport(
            log_probs, self._gradient_difference(packed_gradient, plain_gradient, self._gradient_share())
        )

    def where_they_part(self) -> str:
        """The first layer after which hidden states differ by more than rounding, in words."""
        layers = self._layers()
        if not layers:
            return "its layers are not known"
        packed, plain = _Outputs(layers), _Outputs(layers)
        with torch.no_grad():
            with packed:
                self.model.packed_hidden_states(self.rows)
            found: list[Tensor | None] = [None] * len(layers)
            for own in self.rows.request_positions:
                with plain:
                    self._plain_logits(self.rows.token_ids[own], np.arange(1))
                for index, hidden in plain.of.items():
                    mine = packed.of[index][torch.from_numpy(own).to(self.device)]
                    apart = (mine - hidden).norm() / hidden.norm()
                    before = found[index]
                    found[index] = apart if before is None else torch.maximum(before, apart)
        allowed = 4 * self._rounding_share()
        for index, relative in enumerate(found):
            if relative is not None and not float(relative) <= allowed:
                return f"hidden states part in layer {index} of {len(layers)} (by {float(relative):.2g} of their norm)"
        return f"hidden states agree in all {len(layers)} layers: what comes after them differs"

    # The two runs -----------------------------------------------------------------------------------------------------

    def _kept_positions(self) -> list[Ints]:
        return [own[kept] for own, kept in zip(self.rows.request_positions, self.kept, strict=True)]

    def _packed(self, grads: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of every kept row's targets, flat, and the gradient by embeddings [P, H]."""
        with torch.set_grad_enabled(grads), self._embedded(grads) as leaves:
            hidden = self.model.packed_hidden_states(self.rows)
            flat = target_log_probs(
                hidden,
                self.model.head_logits,
                np.repeat(np.concatenate(self._kept_positions()), TARGETS),
                np.concatenate([targets.ravel() for targets in self.targets]),
            )
        weights = torch.cat([weights.flatten() for weights in self.weights])
        return flat.detach().double().cpu(), self._gradient((flat * weights).sum(), leaves)

    def _plain(self, grads: bool) -> tuple[Tensor, Tensor | None]:
        """The same by one forward a request; the gradients of a shared row's copies are added up."""
        found, gradient = [], None
        for own, kept, targets, weights in zip(
            self.rows.request_positions, self.kept, self.targets, self.weights, strict=True
        ):
            with torch.set_grad_enabled(grads), self._embedded(grads) as leaves:
                logits = self._plain_logits(self.rows.token_ids[own], kept)
                exact = torch.promote_types(logits.dtype, torch.float32)
                chosen = torch.from_numpy(targets).to(self.device)
                log_probs = logits.to(exact).log_softmax(dim=-1).gather(1, chosen)
            part = self._gradient((log_probs * weights).sum(), leaves)
            if part is not None:
                if gradient is None:
                    gradient = part.new_zeros(self.rows.packed_rows, part.shape[-1])
                gradient.index_add_(0, torch.from_numpy(own).to(self.device), part)
            found.append(log_probs.detach().double().cpu().flatten())
        return torch.cat(found), gradient

    def _plain_logits(self, tokens: Ints, kept: Ints) -> Tensor:
        if self.ordinary is not None:
            on_device = (torch.from_numpy(array).to(self.device) for array in (tokens, kept))
            return self.ordinary.ordinary_logits(*on_device)
        alone = unshared_rows([tokens], self.device)
        return self.model.head_logits(self.model.packed_hidden_states(alone)[torch.from_numpy(kept).to(self.device)])

    @contextmanager
    def _embedded(self, grads: bool) -> Iterator[list[Tensor]]:
        """Collects the embeddings of what runs inside, cut off from their table so that a gradient can be asked for."""
        leaves: list[Tensor] = []
        embeddings = self._embeddings() if grads else None
        if embeddings is None:
            yield leaves
            return

        def cut(_: nn.Module, __: object, output: Tensor) -> Tensor:
            leaves.append(output.detach().requires_grad_())
            return leaves[-1].clone()  # models may go on with it in place

        handle = embeddings.register_forward_hook(cut)
        try:
            yield leaves
        finally:
            handle.remove()

    def _gradient(self, loss: Tensor, leaves: list[Tensor]) -> Tensor | None:
        """The gradient by the embeddings, fp64 [rows, H]; None where none were collected."""
        if not leaves or not loss.requires_grad:
            return None
        if self._is_sharded:
            (gradient,) = torch.autograd.grad(loss, leaves[:1])
        else:
            torch.autograd.backward(loss)  # not autograd.grad, which reentrant recompute cannot do
            if leaves[0].grad is None:
                return None
            gradient = leaves[0].grad
        return gradient.detach().double().reshape(-1, gradient.shape[-1])

    # What is known of the model ---------------------------------------------------------------------------------------

    def _embeddings(self) -> nn.Module | None:
        if self.ordinary is not None:
            return self.ordinary.input_embeddings()
        modules = self.module.modules() if isinstance(self.module, nn.Module) else ()
        return next((module for module in modules if isinstance(module, nn.Embedding)), None)

    def _layers(self) -> list[nn.Module]:
        layers = getattr(self.model, "layers", None)
        return list(layers) if isinstance(layers, (list, nn.ModuleList)) else []

    def _require_exercised(self) -> None:
        """Raises where the tree could not show a fault: attention of its own, or a window that no request leaves."""
        if self.ordinary is None:
            return
        if not self.ordinary.last_attention_calls:
            raise UnsupportedModelError("its attention does not go through transformers' attention interface")
        longest = max(len(own) for own in self.rows.request_positions)
        for reach in self.ordinary.last_reaches:
            if reach.size is not None and reach.size >= longest:
                raise UnsupportedModelError(f"{reach} rows cannot be shortened, and so not be checked")

    def _rounding_share(self) -> float:
        """What rounding may change, as a share of what is compared: see the top of this module."""
        dtype = self.model.model_facts().dtype
        if torch.is_autocast_enabled(self.device.type):
            dtype = torch.get_autocast_dtype(self.device.type)
        unit = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
        factor = 64.0 if unit < 1e-6 else 2.0
        if self.device.type == "cuda" and unit < 1e-6 and torch.get_float32_matmul_precision() != "highest":
            unit, factor = 2.0**-10, 2.0  # products in TF32
        additions = 2 * self.model.model_facts().layers + 1
        return factor * unit * math.sqrt(additions)

    def _gradient_share(self) -> float:
        share = self._rounding_share()
        return share * (16 if share < 1e-3 else 4)

    def _gradient_difference(self, packed_PH: Tensor, plain_PH: Tensor, tolerance: float) -> Discrepancy:
        """Per segment, relative to its norm; one of hardly any gradient, to a tenth of the usual norm a row."""
        usual = float(plain_PH.norm()) / math.sqrt(len(plain_PH))
        worst = 0.0
        for segment in range(self.rows.segment_count):
            own = torch.from_numpy(np.flatnonzero(self.rows.segment_ids == segment)).to(self.device)
            scale = max(float(plain_PH[own].norm()), 0.1 * usual * math.sqrt(len(own)), 1e-30)
            apart = float((packed_PH[own] - plain_PH[own]).norm()) / scale
            worst = apart if math.isnan(apart) else max(worst, apart)
            if math.isnan(worst):
                break
        return Discrepancy(worst, tolerance, float((packed_PH - plain_PH).abs().max()))


class _Outputs:
    """The hidden states that come out of each layer while it is entered: fp64 [rows, H] by layer."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self.of: dict[int, Tensor] = {}
        self._layers = layers
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        self.of.clear()
        self._handles = [layer.register_forward_hook(self._keep(index)) for index, layer in enumerate(self._layers)]

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep(self, index: int) -> Callable[..., None]:
        def keep(_: nn.Module, __: object, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            self.of[index] = hidden.detach().double().reshape(-1, hidden.shape[-1])

        return keep


def _kept_rows(rows: PackedRows, own: Ints) -> Ints:
    """Which rows of a request are looked at: those around the edges of its segments, then others evenly."""
    segments = rows.segment_ids[own]
    edges = np.flatnonzero(np.diff(segments, append=-1, prepend=-1))
    wanted = {int(row) for edge in edges for row in (edge - 1, edge) if 0 <= row < len(own)}
    for row in np.linspace(0, len(own) - 1, KEPT_ROWS).astype(int).tolist():
        if len(wanted) < KEPT_ROWS:
            wanted.add(row)
    return np.array(sorted(wanted), dtype=np.int64)


@contextmanager
def _no_number_drawn(module: object, device: torch.device) -> Iterator[None]:
    """Raises where the forwards inside drew random numbers, whatever the setting is called that made them."""

    def state() -> Tensor:
        return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()

    before = state()
    yield
    if torch.equal(state(), before):
        return
    (torch.set_rng_state if device.type == "cpu" else torch.cuda.set_rng_state)(before)
    modules = module.modules() if isinstance(module, nn.Module) else ()
    if DRAWS_THAT_CHANGE_NOTHING.isdisjoint(type(part).__name__ for part in modules):
        raise UnsupportedModelError("its forward draws random numbers anew for every row it computes (dropout, noise)")


@contextmanager
def _without_parameter_gradients(parameters: list[nn.Parameter]) -> Iterator[None]:
    """No parameter takes part in a backward pass while inside. Sharded ones are left alone: they are asked nothing."""
    trained = [] if _is_sharded(parameters) else [value for value in parameters if value.requires_grad]
    try:
        for value in trained:
            value.requires_grad_(False)
        yield
    finally:
        for value in trained:
            value.requires_grad_(True)


def _is_sharded(parameters: list[nn.Parameter]) -> bool:
    return any(hasattr(value, "full_tensor") for value in parameters)
