"""`MicroBatches`: waves of anybody's items, sized by memory. The caller builds a wave's batch and runs all of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import nn

from adapters.micro_batches.errors import HeadError
from adapters.micro_batches.micro import Micro
from adapters.micro_batches.unshared_work import UnsharedWork
from adapters.torch_memory import BudgetSampler, PeakMeter, Role, meter_for
from adapters.torch_memory.trust import environment_facts
from adapters.trainer_rank.arguments import as_law, as_safety
from adapters.trainer_rank.identity import ModelIdentity, decoder_layers
from adapters.trainer_rank.recompute import recompute_mode_of
from adapters.wave_loop.batch_result import BatchResult, Waves
from adapters.wave_loop.call import OnRefusal
from adapters.wave_loop.loop import WaveLoop
from adapters.wave_loop.memory import budget_sampler
from adapters.wave_loop.profile_store import ProfileStore
from adapters.wave_loop.wave import WaveStats
from pricing import DEFAULT_LAW, DEFAULT_SAFETY, Law, RequestSpec, Safety
from pricing.kernel.requests import RecomputeMode
from pricing.planner.plan import WavePlan
from pricing.planner.quorum import SINGLE_PROCESS, Quorum
from pricing.planner.row_shapes import RowShape
from pricing.records.recorder import Recorder

_log = logging.getLogger(__name__)

LOGITS: Final = "logits"
CHUNKED: Final = "chunked"

T = TypeVar("T")


class MicroBatches(WaveLoop):
    """One rank's loop over items of the caller: how many of the next ones fit is planned, the caller runs them.

    model: whose parameters train; any module, on one device. Wrappers are fine as far as their collectives are: ranks
    agree on every wave, and a rank that has no items left gets waves without any (see `split`).
    memory_bytes: use at most this much of the device; on a CPU the size of the device it stands for (needed there).
    head: "logits" where the caller's forward makes the logits of all rows at once, as a plain Hugging Face forward
    does; "chunked" where it never does (a fused or chunked loss, recomputed in backward): only such waves are
    packed-priced. One that says "chunked" and shows otherwise is named in the record and in the log.
    parameters: others beside the model's that backward reaches (a value head).
    law, safety, profiles, topology, quorum, recorder, device, meter, sampler: as in `TrainerRank`.

    A wave of the same model may be padded or packed; neither teaches the other. Use one thread.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        memory_bytes: int | None = None,
        profiles: str | Path | None = None,
        law: Law | str = DEFAULT_LAW,
        safety: Safety | Fraction | Decimal | str | float = DEFAULT_SAFETY,
        head: str = LOGITS,
        topology: str = "single",
        quorum: Quorum = SINGLE_PROCESS,
        recorder: Recorder | None = None,
        parameters: Iterable[nn.Parameter] = (),
        device: torch.device | str | None = None,
        meter: PeakMeter | None = None,
        sampler: BudgetSampler | None = None,
    ) -> None:
        if head not in (LOGITS, CHUNKED):
            raise HeadError(f"head must be {LOGITS!r} or {CHUNKED!r}, got {head!r}")
        chosen_law, chosen_safety = as_law(law), as_safety(safety)
        trained = list(dict.fromkeys([*model.parameters(), *parameters]))
        device = next(value.device for value in trained) if device is None else torch.device(device)
        meter = meter_for(device) if meter is None else meter
        self._model = model
        self._head = head
        self._identity = ModelIdentity(model)
        self._topology = f"{type(model).__name__}, {topology}"
        self._named_heads: set[str] = set()
        facts = (
            self._identity.facts | environment_facts(device) | {"model": type(model).__name__, "loop": "the caller's"}
        )
        super().__init__(
            device=device,
            meter=meter,
            sampler=budget_sampler(device, meter, memory_bytes) if sampler is None else sampler,
            profiles=ProfileStore(profiles, facts),
            law=chosen_law,
            safety=chosen_safety,
            quorum=quorum,
            recorder=recorder,
            parameters=trained,
        )

    def split(
        self,
        items: Sequence[T],
        rows: Callable[[T], int] = len,  # type: ignore[assignment]  # len where items have one
        *,
        padded: bool = False,
        multiple: int = 1,
        grads: bool | None = None,
        on_refusal: OnRefusal = "raise",
    ) -> Waves[Micro[T]]:
        """Micro-batches of `items`, in order, each as many of the next ones as fit.

            for micro in batches.split(sequences, rows=len):
                with micro:
                    loss(micro.items).backward()

        rows: an item's rows (tokens). In a packed micro-batch they add up; in a padded one (`padded=True`: one tensor
        [B, longest]) each counts for the longest. Sort the items by length before, and padding costs little; any order
        is priced for what it is. multiple: what a padded tensor's columns, or the packed rows, are rounded up to.
        grads: whether a backward runs (None: whether autograd is on now).

        The whole forward, loss and backward belong inside the turn, in one function of yours or under `with micro:`,
        and whatever the loop body keeps of a micro-batch stays allocated: use `.detach()` or `.item()` on losses. Step
        the optimizer whenever you like.

        With several ranks every rank must make the same calls; a rank that has no items left gets micro-batches without
        items until every rank is done. Where your forward or backward communicates (FSDP, DDP without `no_sync`), run
        something there too.

        A turn that runs out of memory raises `AdmittedOutOfMemoryError` (under `with micro:`) and was learned from;
        `train_batch` goes on by itself. Raises `WaveRefusedError` before anything of a refused item runs,
        `AdmissionError`, `BudgetSampleError`, `ItemRowsError`.
        """
        return self._waves(self._make(items, rows, padded, multiple, grads), Role.WAVE, on_refusal)

    def train_batch(
        self,
        items: Sequence[T],
        loss_fn: Callable[[Micro[T]], torch.Tensor | None],
        rows: Callable[[T], int] = len,  # type: ignore[assignment]
        *,
        padded: bool = False,
        multiple: int = 1,
        backward: Callable[[torch.Tensor], object] | None = torch.autograd.backward,
        step_empty: bool = False,
        on_refusal: OnRefusal = "raise",
        parameters: Iterable[nn.Parameter] = (),
    ) -> BatchResult:
        """Forward, loss and backward of `items` as micro-batches, whatever runs out of memory on the way.

            result = batches.train_batch(sequences, lambda micro: loss(micro.items), rows=len)
            optimizer.step()

        When it returns, `.grad` holds what was there before plus each item's gradient exactly once; when it raises,
        what was there before. See `TrainerRank.train_batch`. The result's waves name positions in `items`.

        loss_fn: from a micro-batch to its share of the batch's loss. backward: run on it (`accelerator.backward`); None
        where `loss_fn` ran it already. step_empty: call `loss_fn` for micro-batches without items too, for steps that
        communicate; what it runs then is neither planned nor measured, so let it be no more than one short item.

        With several ranks a forward or backward that communicates cannot be taken back alone: where it runs out of
        memory on one rank, the others wait in a collective that it never enters, until that times out.
        """

        def step(micro: Micro[T]) -> torch.Tensor | None:
            loss = loss_fn(micro)
            if loss is not None and backward is not None:
                backward(loss)
            return loss

        make_work = self._make(items, rows, padded, multiple, grads=True)
        return self._train(make_work, step, on_refusal=on_refusal, parameters=parameters, step_empty=step_empty)

    def plan(
        self,
        items: Sequence[T],
        rows: Callable[[T], int] = len,  # type: ignore[assignment]
        *,
        padded: bool = False,
        multiple: int = 1,
        grads: bool | None = None,
    ) -> WavePlan:
        """What the first micro-batch of `items` would be now, and at which price; nothing runs. Collective like the
        others."""
        return self._first_plan(self._make(items, rows, padded, multiple, grads))

    def _make(
        self, items: Sequence[T], rows: Callable[[T], int], padded: bool, multiple: int, grads: bool | None
    ) -> Callable[[], UnsharedWork[T]]:
        return partial(
            UnsharedWork[T],
            items,
            rows=rows,
            shape=RowShape.PADDED if padded else RowShape.PACKED,
            multiple=multiple,
            grads=torch.is_grad_enabled() if grads is None else grads,
            spec=self._spec,
            topology=self._live_topology,
            recompute=self._recompute,
        )

    def _spec(self, rows: int) -> RequestSpec:
        """What is asked of an item: the logits of its rows, or one number a row from a head in chunks."""
        if self._head == CHUNKED:
            return RequestSpec(input_shape=(rows,), target_shape=(rows,))
        return RequestSpec(input_shape=(rows,), logits=True)

    def _live_topology(self) -> str:
        live = self._identity.live()
        return f"{self._topology}, {live}" if live else self._topology

    def _recompute(self) -> RecomputeMode:
        own = getattr(self._model, "recompute_mode", None)
        if callable(own):
            mode = own()
            assert isinstance(mode, RecomputeMode)
            return mode
        return recompute_mode_of(decoder_layers(self._model))

    # A head that is not what it was said to be ----------------------------------------------------------------------

    def _note(self, stats: WaveStats) -> str:
        note = super()._note(stats)
        if note or self._head != CHUNKED or not stats.is_complete or stats.observed_bytes is None:
            return note
        logits_bytes = self._logits_bytes(stats.plan.wave.packed_rows)
        if not logits_bytes or stats.observed_bytes < logits_bytes + self._kept_bytes(stats.plan.wave.packed_rows):
            return note
        note = (
            f"the peak has room for the logits of all rows and their gradient ({logits_bytes:,} B), beside what the "
            f'layers keep: a head in chunks makes neither. If this one makes them, say head="{LOGITS}"'
        )
        topology = stats.plan.signature.topology
        if topology not in self._named_heads:
            self._named_heads.add(topology)
            _log.warning("%s (%s)", note, topology)
        return note

    def _logits_bytes(self, rows: int) -> int:
        """The logits of `rows` and their gradient, in the parameters' dtype; 0 where no vocabulary is known."""
        return 2 * rows * _configured(self._model, "vocab_size") * self._dtype_bytes

    def _kept_bytes(self, rows: int) -> int:
        """One hidden state a layer."""
        return rows * len(decoder_layers(self._model)) * _configured(self._model, "hidden_size") * self._dtype_bytes

    @property
    def _dtype_bytes(self) -> int:
        return next(value.dtype.itemsize for value in self._gradients.parameters)


def _configured(model: nn.Module, name: str) -> int:
    """A size of the model's configuration; 0 where it has none of that name."""
    config: Any = getattr(model, "config", None)
    text_config = getattr(config, "get_text_config", None)
    value = getattr(text_config() if callable(text_config) else config, name, 0)
    return value if isinstance(value, int) else 0
