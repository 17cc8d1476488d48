"""The CPU counter against peaks computed by hand, to the byte, and against a model of random programs."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from adapters.torch_memory import OwnershipError, Refusal, StorageCounter

FLOAT_BYTES = 4


def _peak_bytes(counter: StorageCounter) -> int:
    return counter.peaks()[0]


def test_counts_storage_from_its_operation_to_its_death(counter: StorageCounter) -> None:
    first = torch.empty(1_000)
    second = torch.empty(500, dtype=torch.int64)
    assert counter.allocated() == 8_000
    del first
    assert counter.allocated() == 4_000
    third = torch.empty(250)
    assert (counter.allocated(), _peak_bytes(counter)) == (5_000, 8_000)
    del second, third
    assert (counter.allocated(), _peak_bytes(counter)) == (0, 8_000)
    counter.reset_peak()
    assert counter.peaks() == (0, 0)


def test_views_and_in_place_results_cost_nothing(counter: StorageCounter) -> None:
    base = torch.zeros(10, 10)
    views = [base.t(), base[2:5], base.expand(3, 10, 10), base.detach(), base.view(100)]
    base.add_(1).mul_(2)
    torch.add(base, 1, out=base)
    assert (counter.allocated(), _peak_bytes(counter)) == (400, 400)
    del base
    assert counter.allocated() == 400, "a view keeps its storage alive"
    views.clear()
    assert counter.allocated() == 0


def test_storage_from_before_counts_only_if_tracked() -> None:
    weight = torch.ones(100)
    with StorageCounter() as counter:
        weight.mul_(2)
        _ = weight.view(10, 10)
        assert counter.allocated() == 0
        counter.track([weight, weight.view(10, 10)])
        assert counter.peaks() == (400, 1)
        del weight, _
        assert counter.allocated() == 0


def test_literals_copies_and_resizes_count(counter: StorageCounter) -> None:
    literal = torch.tensor([1.0, 2.0])
    copied = torch.nn.Parameter(literal).__deepcopy__({})
    assert counter.allocated() == 16
    grown = torch.empty(2)
    grown.resize_(10)
    assert counter.allocated() == 16 + 40
    assert copied.numel() + grown.numel() == 12


def test_other_devices_and_layouts_are_not_counted(counter: StorageCounter) -> None:
    meta = torch.empty(1_000, device="meta")
    values = torch.ones(2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 3]]), values, (5,), check_invariants=True)
    assert counter.allocated() == values.nbytes + 2 * 8
    assert meta.numel() + sparse.shape[0] == 1_005


def test_forward_and_backward_peaks_by_hand(counter: StorageCounter) -> None:
    """y = relu(x w1) w2 with n rows and h hidden; x, w1, w2 from before. f = 4 bytes.

    Forward: x w1 (nhf) lives until relu has made its own nhf, which backward needs; then y (nf). Backward, at
    its highest (relu's own step): saved relu output and the gradients on both its sides (3 nhf), y and the
    gradient of w2 (nf + hf), the loss and its own gradient, which backward() holds until it returns (2f). The
    gradient of y is a view of the latter.
    """
    n, d, h, f = 100, 8, 64, FLOAT_BYTES
    inputs = torch.ones(n, d)
    first, second = torch.ones(d, h, requires_grad=True), torch.ones(h, 1, requires_grad=True)
    baseline = counter.allocated()
    counter.reset_peak()

    outputs = torch.relu(inputs @ first) @ second
    assert _peak_bytes(counter) - baseline == 2 * n * h * f
    assert counter.allocated() - baseline == n * h * f + n * f

    loss = outputs.sum()
    counter.reset_peak()
    loss.backward()
    assert _peak_bytes(counter) - baseline == 3 * n * h * f + n * f + h * f + 2 * f
    assert counter.allocated() - baseline == d * h * f + h * f + n * f + f, "gradients, outputs and the loss stay"


def test_recompute_trades_saved_activations_for_a_workspace(counter: StorageCounter) -> None:
    """Four layers of n x h tanh(x): without recompute every layer's output is saved; with it, one segment at
    a time."""
    n, h, f, layers = 50, 40, FLOAT_BYTES, 4

    def layer(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.tanh(torch.tanh(x)))

    def retained(recompute: bool) -> int:
        start = torch.ones(n, h, requires_grad=True)
        before = counter.allocated()
        x = start
        for _ in range(layers):
            x = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
        return counter.allocated() - before

    assert retained(recompute=False) == 3 * layers * n * h * f
    assert retained(recompute=True) == layers * n * h * f


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_tensors_made_in_backward_are_seen(counter: StorageCounter, use_reentrant: bool) -> None:
    """Recomputation runs inside backward; three activations of a segment are live there and none of them
    before."""
    n = 10_000
    start = torch.ones(n, requires_grad=True)
    out = checkpoint(lambda x: torch.tanh(torch.tanh(torch.tanh(x))), start, use_reentrant=use_reentrant)
    baseline = counter.allocated()
    counter.reset_peak()
    out.sum().backward()
    assert _peak_bytes(counter) - baseline >= 3 * n * FLOAT_BYTES


def test_garbage_cycles_die_when_they_are_collected(counter: StorageCounter) -> None:
    class Holder:
        pass

    holder = Holder()
    holder.tensor, holder.itself = torch.empty(1_000), holder  # type: ignore[attr-defined]
    gc.disable()
    try:
        del holder
        assert counter.allocated() == 4_000
    finally:
        gc.enable()
    gc.collect()
    assert counter.allocated() == 0


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["new", "view", "clone", "add", "drop", "reset"]), st.integers(0, 63))))
def test_any_program_counts_as_its_model_does(program: list[tuple[str, int]]) -> None:
    """The model: each storage's bytes and how many tensors hold it; live is the sum of those held."""
    tensors: list[tuple[torch.Tensor, int]] = []  # with the storage's number
    size_bytes: dict[int, int] = {}
    live_bytes = peak_bytes = 0
    with StorageCounter() as counter:
        for verb, number in program:
            made = None
            if verb == "new":
                made = torch.empty(number)
            elif verb == "reset":
                counter.reset_peak()
                peak_bytes = live_bytes
            elif tensors:
                tensor, storage = tensors[number % len(tensors)]
                if verb == "view":
                    tensors.append((tensor.view(-1), storage))
                elif verb == "drop":
                    del tensors[number % len(tensors)]
                else:
                    made = tensor.clone() if verb == "clone" else tensor + 1
                del tensor
            if made is not None:
                size_bytes[len(size_bytes)] = made.nbytes
                tensors.append((made, len(size_bytes) - 1))
                del made
            live_bytes = sum(size_bytes[storage] for storage in {storage for _, storage in tensors})
            peak_bytes = max(peak_bytes, live_bytes)
            assert (counter.allocated(), _peak_bytes(counter)) == (live_bytes, peak_bytes)
        tensors.clear()
        assert counter.allocated() == 0


def test_owner_and_order_are_kept(counter: StorageCounter) -> None:
    owner, other = object(), object()
    counter.claim(owner)
    with pytest.raises(OwnershipError):
        counter.reset(other)
    with pytest.raises(OwnershipError):
        counter.claim(other)
    with pytest.raises(OwnershipError):
        counter.release(other)
    counter.reset(owner)
    counter.release(owner)
    with pytest.raises(OwnershipError):
        counter.reset(owner)
    with pytest.raises(OwnershipError):
        counter.__enter__()


def test_leaving_out_of_order_is_an_error_and_not_a_broken_stack() -> None:
    outer, inner = StorageCounter(), StorageCounter()
    with outer:
        with inner:
            with pytest.raises(OwnershipError):
                outer.__exit__(None, None, None)
            assert inner.refusal() is None
        assert inner.refusal() is Refusal.COUNTER_NOT_WATCHING
        assert outer.refusal() is None
