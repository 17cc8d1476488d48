"""The loop without shared prefixes: any module, the caller's own forward, padded or packed, sized by memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.micro_batches import AdmittedOutOfMemoryError, Micro, MicroBatches, WaveRefusedError
from adapters.micro_batches.errors import HeadError, ItemRowsError
from adapters.torch_memory import Flaw, PeakMeter, meter_for
from pricing.kernel.quantities import MIB
from pricing.records.recorder import Recorder
from tests.adapters.micro_batches.support import (
    LOSSES,
    Sequences,
    assert_same_gradients,
    gradients,
    limited_device,
    llama,
    packed_loss,
    padded_loss,
    sequences,
)

ROOMY_BYTES = 256 * MIB
SHAPES = pytest.mark.parametrize("padded", [True, False], ids=["padded", "packed"])


@pytest.fixture
def meter() -> Iterator[PeakMeter]:
    with meter_for("cpu") as made:
        yield made


def batches(meter: PeakMeter, model: nn.Module, **settings: Any) -> MicroBatches:
    defaults: dict[str, Any] = {"memory_bytes": ROOMY_BYTES, "law": "frontier", "safety": "51/50"}
    return MicroBatches(model, meter=meter, **(defaults | settings))


def unsplit(items: Sequences, padded: bool) -> tuple[dict[str, Tensor], int]:
    """Gradients of the whole batch at once, and the peak that it takes above what was live."""
    with meter_for("cpu") as meter:
        model = llama()
        (only,) = (
            batches(meter, model)
            .train_batch([items], lambda micro: LOSSES[padded](model, micro.items[0]), lambda _: 1)
            .waves
        )
        assert only.stats.observed_bytes is not None
        return gradients(model), only.stats.observed_bytes


@SHAPES
@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "as they come"])
def test_gradients_are_the_unsplit_batchs_on_a_device_that_holds_a_third(padded: bool, is_sorted: bool) -> None:
    items = sequences(40)
    if is_sorted:
        items.sort(key=len)
    wanted, need_bytes = unsplit(items, padded)
    model = llama()
    model_bytes = sum(value.nbytes for value in model.parameters())
    with limited_device(2 * model_bytes + need_bytes // 3) as (meter, device):
        meter.counter.track(model.parameters())  # type: ignore[attr-defined]
        ours = batches(meter, model, memory_bytes=device.limit_bytes)
        for _ in range(3):
            model.zero_grad()
            seen: list[int] = []
            for micro in ours.split(items, padded=padded):
                with micro:
                    lengths = [len(item) for item in micro.items]
                    assert micro.rows == (len(lengths) * max(lengths) if padded else sum(lengths))
                    LOSSES[padded](model, micro.items).backward()
                assert micro.stats.is_complete
                seen.extend(micro.indices)
            assert seen == list(range(40))
            assert_same_gradients(gradients(model), wanted)
        assert device.raised == 0


@SHAPES
def test_a_batch_survives_a_device_smaller_than_its_budget_says(padded: bool, tmp_path: Path) -> None:
    items = sorted(sequences(40), key=len)
    wanted, need_bytes = unsplit(items, padded)
    model = llama()
    model_bytes = sum(value.nbytes for value in model.parameters())
    with limited_device(3 * model_bytes + need_bytes // 3) as (meter, device):
        meter.counter.track(model.parameters())  # type: ignore[attr-defined]
        claimed = {"memory_bytes": 4 * device.limit_bytes, "profiles": tmp_path / "profiles.json"}
        ours = batches(meter, model, **claimed)
        failures = 0
        for again in (False, True, True):
            model.zero_grad()
            result = ours.train_batch(items, lambda micro: LOSSES[padded](model, micro.items), padded=padded)
            assert_same_gradients(gradients(model), wanted)
            assert [item for wave in result.waves for item in wave.items] == list(range(40))
            failures += len(result.out_of_memory)
            if again:
                ours = batches(meter, model, **claimed)
                assert ours.profiles.started_warm
        assert device.raised == failures > 0
        model.zero_grad()
        assert not ours.train_batch(
            items, lambda micro: LOSSES[padded](model, micro.items), padded=padded
        ).out_of_memory, "what ran out is not tried again, also after a restart"


def test_out_of_memory_in_the_callers_own_loop_is_learned_and_named() -> None:
    items = sorted(sequences(40), key=len)
    _, need_bytes = unsplit(items, True)
    model = llama()
    with limited_device(need_bytes // 3) as (meter, device):
        ours = batches(meter, model, memory_bytes=8 * need_bytes)
        for _ in range(20):
            model.zero_grad()
            try:
                for micro in ours.split(items, padded=True):
                    with micro:
                        padded_loss(model, micro.items).backward()
            except AdmittedOutOfMemoryError as error:
                assert "in the caller's phase of an admitted wave" in str(error)
            else:
                break
        else:
            pytest.fail("it never learned")
        assert device.raised > 0


def test_padded_and_packed_and_recomputed_waves_teach_one_another_nothing(meter: PeakMeter) -> None:
    model, items = llama(), sequences(6)
    ours = batches(meter, model)

    def run(padded: bool) -> str:
        for micro in ours.split(items, padded=padded):
            with micro:
                LOSSES[padded](model, micro.items).backward()
        return micro.stats.plan.signature.key

    keys = {run(True), run(False)}
    model.gradient_checkpointing_enable({"use_reentrant": False})
    keys |= {run(True)}
    model.eval()
    keys |= {run(True)}
    assert len(keys) == len(ours.profiles) == 4


def run_all(ours: MicroBatches, model: nn.Module, items: Sequences) -> list[Micro[list[int]]]:
    """The items' micro-batches, run."""
    run = []
    for micro in ours.split(items, padded=True):
        with micro:
            padded_loss(model, micro.items).backward()
        run.append(micro)
    return run


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_a_model_that_drops_out_is_another_one_in_eval_mode(meter: PeakMeter, share: float) -> None:
    """Backward keeps what was dropped. Without dropout a wave in eval mode takes what one in train mode does, and both
    have one signature."""
    model, items = llama(), sequences(6)
    for layer in model.model.layers:
        layer.mlp = nn.Sequential(layer.mlp, nn.Dropout(share))
    ours = batches(meter, model)
    looks = {}
    for mode in (True, False):
        model.train(mode)
        looks[mode] = [micro.stats for _ in range(4) for micro in run_all(ours, model, items)][-1]
        assert len(looks[mode].plan.requests) == len(items)
    peaks = {mode: stats.observed_bytes or 0 for mode, stats in looks.items()}
    signatures = {stats.plan.signature for stats in looks.values()}
    if share:
        assert peaks[True] > 1.01 * peaks[False] and len(signatures) == 2
        assert looks[False].plan.signature.topology.count("dropout off") == 1
    else:
        assert peaks[True] == peaks[False] and len(signatures) == 1


# Readings -------------------------------------------------------------------------------------------------------------


def _no_backward(model: nn.Module, micro: Micro[list[int]]) -> None:
    padded_loss(model, micro.items)


def _only_gradients(model: nn.Module, micro: Micro[list[int]]) -> None:
    torch.autograd.grad(padded_loss(model, micro.items), list(model.parameters()))


def _two_backwards(model: nn.Module, micro: Micro[list[int]]) -> None:
    for item in micro.items:
        padded_loss(model, [item]).backward()


class Broken(torch.autograd.Function):
    """Raises in backward, after some of the parameters have their gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise ValueError("broken")


def _half_a_backward(model: nn.Module, micro: Micro[list[int]]) -> None:
    handle = model.get_submodule("model.layers.0").register_forward_hook(
        lambda _module, _given, out: Broken.apply(out)  # type: ignore[no-untyped-call]
    )
    with pytest.raises(ValueError, match="broken"):
        padded_loss(model, micro.items).backward()
    handle.remove()


@pytest.mark.parametrize(
    ("body", "is_seen"),
    [(_no_backward, False), (_only_gradients, False), (_half_a_backward, False), (_two_backwards, True)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_reading_is_complete_only_where_a_backward_came_to_its_end(
    meter: PeakMeter, body: Any, is_seen: bool
) -> None:
    model = llama()
    for micro in batches(meter, model).split(sequences(1)):
        body(model, micro)
    assert micro.stats.is_complete == is_seen
    assert micro.stats.closing is not None
    assert (Flaw.BACKWARD_NOT_SEEN in micro.stats.closing.flaws) != is_seen


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_backward_inside_a_backward_is_not_its_end(meter: PeakMeter, reentrant: bool) -> None:
    model = llama()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    for micro in batches(meter, model).split(sequences(1)):
        with micro:
            padded_loss(model, micro.items).backward()
    assert micro.stats.is_complete and micro.stats.closing is not None
    made = sum(value.nbytes for value in model.parameters())
    assert micro.stats.closing.left_bytes <= made


def test_what_a_caller_keeps_of_the_wave_before_is_no_saving(meter: PeakMeter) -> None:
    """`outputs = model(...)` in a loop lets the last wave's logits go in the middle of this one: the peak above the
    baseline reads low, and a wave after a pause, which has no such logits to let go, would be under-priced."""
    model, items = llama(), [sequences(1, least=180, most=180)[0]] * 6

    def peaks(keeps: bool) -> list[int]:
        ours, seen = batches(meter, model), []
        logits: Tensor | None = None
        for at in range(0, 6, 2):
            for micro in ours.split(items[at : at + 2], lambda _: 100):
                with micro:
                    if not keeps:
                        logits = None
                    logits = model(input_ids=torch.tensor(list(micro.items))).logits
                    logits.float().sum().backward()
                if not keeps:
                    logits = None
                seen.append(micro.stats.observed_bytes or 0)
        return seen

    clean, kept = peaks(False), peaks(True)
    assert all(own >= most for own, most in zip(kept, clean, strict=True))
    assert max(kept) <= 2 * max(clean)


def test_an_optimizer_that_steps_inside_a_turn_is_no_cost_of_its_rows(meter: PeakMeter) -> None:
    model, items = llama(), sequences(8, least=100, most=100)
    optimizer = torch.optim.AdamW(model.parameters())
    peaks = []
    for step in (False, True):
        for micro in batches(meter, model).split(items[:1]):
            padded_loss(model, micro.items).backward()
            if step:
                optimizer.step()
        peaks.append(micro.stats.observed_bytes)
        model.zero_grad()
        assert micro.stats.is_complete
    assert peaks[0] == peaks[1]


def test_waves_without_gradients_are_complete_and_their_own(meter: PeakMeter) -> None:
    model, items = llama(), sequences(5)
    ours = batches(meter, model)
    with torch.no_grad():
        for micro in ours.split(items):
            packed_loss(model, micro.items)
    assert micro.stats.is_complete and micro.stats.plan.signature.grad_modes == (False,)
    assert all(value.grad is None for value in model.parameters())


# What is refused ------------------------------------------------------------------------------------------------------


def test_an_item_that_cannot_run_is_refused_or_left_out(meter: PeakMeter) -> None:
    model = llama()
    meter.counter.track(model.parameters())  # type: ignore[attr-defined]
    ours = batches(meter, model, memory_bytes=8 * MIB)
    short = sequences(6, least=50, most=80)
    for _ in range(3):
        for micro in ours.split(short):
            with micro:
                packed_loss(model, micro.items).backward()
    long = sequences(1, least=3_000, most=3_000)
    with pytest.raises(WaveRefusedError, match="cannot run 3,000 packed rows"):
        list(ours.split(long))
    taken = ours.split([short[0], *long, short[1]], on_refusal="skip")
    ran: list[int] = []
    for micro in taken:
        with micro:
            packed_loss(model, micro.items).backward()
        ran.extend(micro.indices)
    assert ran == [0, 2] and [skipped.item for skipped in taken.skipped] == [1]


@pytest.mark.parametrize("bad", [-1, 2.5, True, None])
def test_rows_that_are_no_count_are_named(meter: PeakMeter, bad: Any) -> None:
    ours = batches(meter, llama())
    with pytest.raises(ItemRowsError, match="item 1: rows"):
        list(ours.split([0, 1], lambda item: 5 if item == 0 else bad))


def test_an_empty_call_has_no_waves(meter: PeakMeter) -> None:
    assert list(batches(meter, llama()).split([])) == []


def test_items_without_rows_are_handed_out_too(meter: PeakMeter) -> None:
    ours = batches(meter, llama())
    ran = [micro.items for micro in ours.split([0, 0, 5, 0], lambda rows: rows)]
    assert [item for items in ran for item in items] == [0, 0, 5, 0]


# The head -------------------------------------------------------------------------------------------------------------


def test_a_head_is_one_of_two(meter: PeakMeter) -> None:
    with pytest.raises(HeadError, match="'logits' or 'chunked', got 'fused'"):
        batches(meter, llama(), head="fused")


def chunked_loss(model: Any, items: Any) -> Tensor:
    """Logits of 16 rows at a time, recomputed in backward."""
    from torch.utils.checkpoint import checkpoint

    hidden = model.model(input_ids=torch.tensor(list(items))).last_hidden_state.flatten(0, 1)
    total = torch.zeros(())
    for chunk in hidden.split(16):
        logits = checkpoint(lambda rows: model.lm_head(rows).float().logsumexp(-1).sum(), chunk, use_reentrant=False)
        total = total + logits
    return total


def whole_loss(model: Any, items: Any) -> Tensor:
    return model(input_ids=torch.tensor(list(items))).logits.float().logsumexp(-1).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("loss", "is_named"), [(chunked_loss, False), (whole_loss, True)])
def test_a_head_that_is_not_in_chunks_is_named_in_the_record(
    meter: PeakMeter, loss: Any, is_named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = llama(vocabulary=4_096)
    notes: list[str] = []

    class Notes(Recorder):
        def observed(self, ticket: Any, reading: Any, *, note: str = "") -> Any:
            notes.append(note)
            return super().observed(ticket, reading, note=note)

    model.gradient_checkpointing_enable({"use_reentrant": False})
    ours = batches(meter, model, head="chunked", recorder=Notes())
    for micro in ours.split(sequences(4, least=128, most=128)):
        with micro:
            loss(model, micro.items).backward()
        assert micro.stats.plan.price.packed_priced or micro.stats.plan.profile.is_empty
    assert all(("the logits of all rows" in note) == is_named for note in notes) and notes
    assert caplog.text.count('say head="logits"') == is_named


def test_random_orders_are_priced_for_what_they_are(meter: PeakMeter) -> None:
    """Padding to the longest costs what it costs, wherever the longest stands."""
    model, items = llama(), sequences(24, least=10, most=150)
    random.Random(1).shuffle(items)
    ours = batches(meter, model)
    for _ in range(2):
        for micro in ours.split(items, padded=True):
            with micro:
                padded_loss(model, micro.items).backward()
            observed, predicted = micro.stats.observed_bytes, micro.stats.predicted_bytes
            assert observed is not None and (micro.stats.plan.profile.is_empty or observed <= predicted)
