"""What every device owes the caller of a `TrainerRank`: run on a CPU by `test_waves`, on a GPU by `tests/cuda`."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from adapters.torch_memory import Flaw, PeakMeter
from adapters.trainer_rank import AdmittedOutOfMemoryError, WaveOverError
from pricing import ReadingKind
from pricing.planner.plan import Verdict
from tests.adapters.trainer_rank.waves import calibrated, group, groups, loss_of, only_profile, rank_on, train

MIB = 1 << 20


def run_out_of_memory(meter: PeakMeter) -> None:
    if meter.counter.device.type == "cuda":
        # As much as the device has: more than is free, and what is learned of it still lets half the wave in.
        total_bytes = torch.cuda.get_device_properties(meter.counter.device).total_memory
        torch.empty(total_bytes, dtype=torch.uint8, device=meter.counter.device)
    raise torch.OutOfMemoryError("out of memory, as the allocator says it")


class WaveContract:
    """What the caller does with a wave decides what is learned from it. The `meter` fixture names the device."""

    def test_waves_that_run_whole_are_covered_by_their_prices(self, meter: PeakMeter) -> None:
        rank = rank_on(meter)
        waves = train(rank, groups(6)) + train(rank, groups(6, completion=40))
        assert [wave.stats.plan.verdict for wave in waves[:2]] == [Verdict.COLD_START, Verdict.RUN]
        for wave in waves:
            assert wave.stats.is_complete
            assert wave.stats.closing is not None and wave.stats.closing.reading is not None
            assert wave.stats.closing.reading.kind is ReadingKind.WHOLE_WAVE
        for wave in waves[1:]:
            assert wave.stats.observed_bytes is not None
            assert 0 < wave.stats.observed_bytes <= wave.stats.predicted_bytes
            assert wave.stats.over_estimate is not None and wave.stats.over_estimate >= 0
        assert only_profile(rank).has_warm_fit

    def test_outputs_come_in_caller_order_and_with_their_indices(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        items = [group(3), group(1), [group(2)[0]]]
        flat = [request for item in items for request in item]
        alone = rank.dp_rank_forward(flat)
        seen: dict[int, torch.Tensor] = {}
        for wave in rank.forward_micro_batches(items):
            assert [flat[index] for index in wave.indices] == list(wave.requests)
            for index, output in zip(wave.indices, wave.outputs, strict=True):
                assert output.target_log_probs is not None
                seen[index] = output.target_log_probs.detach()
            loss_of(wave.outputs).backward()
        assert sorted(seen) == list(range(len(flat)))
        for index, output in enumerate(alone):
            assert output.target_log_probs is not None
            torch.testing.assert_close(output.target_log_probs.detach(), seen[index], rtol=2e-2, atol=2e-2)

    def test_a_nested_forward_in_every_wave_leaves_the_warm_fit_inert(self, meter: PeakMeter) -> None:
        rank = rank_on(meter)
        for _ in range(4):
            for wave in rank.forward_micro_batches([group(0)]):
                rank.dp_rank_forward([group(1, grads=False)])
                loss_of(wave.outputs).backward()
            assert wave.stats.closing is not None and wave.stats.closing.reading is not None
            assert wave.stats.closing.reading.kind is ReadingKind.INTERRUPTED
            assert Flaw.NESTED_INTERVAL in wave.stats.closing.flaws
        trained = next(profile for signature, profile in rank.profiles.items() if signature.grad_modes == (True,))
        assert trained.complete_readings == 0
        assert not trained.has_warm_fit

    def test_a_nested_forwards_peak_is_composed_not_lost(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        (plain,) = train(rank, [group(0)])
        for wave in rank.forward_micro_batches([group(0)]):
            loss_of(wave.outputs).backward()
            rank.dp_rank_forward([group(1, prompt=8, rollouts=1, completion=8, grads=False)])
        assert wave.stats.observed_bytes is not None and plain.stats.observed_bytes is not None
        assert wave.stats.observed_bytes >= plain.stats.observed_bytes * 0.99

    def test_a_caller_that_never_runs_backward_cannot_lower_a_price(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        before = only_profile(rank)
        for wave in rank.forward_micro_batches([group(0, rollouts=2)]):
            assert len(wave.outputs) == 2
        assert wave.stats.closing is not None
        assert Flaw.BACKWARD_NOT_SEEN in wave.stats.closing.flaws
        assert not wave.stats.is_complete
        after = only_profile(rank)
        assert after.complete_readings == before.complete_readings
        assert after.warm_packed_rows == before.warm_packed_rows

    def test_a_deferred_backward_is_noticed(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        losses = []
        for wave in rank.forward_micro_batches([group(0)]):
            losses.append(loss_of(wave.outputs))
        losses[0].backward()
        assert wave.stats.closing is not None
        assert wave.stats.closing.reading is not None
        assert wave.stats.closing.reading.kind is ReadingKind.INTERRUPTED
        assert Flaw.BACKWARD_NOT_SEEN in wave.stats.closing.flaws

    def test_a_foreign_reset_is_noticed(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        for wave in rank.forward_micro_batches([group(0)]):
            if meter.counter.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            else:
                meter.counter.reset_peak()  # type: ignore[attr-defined]
            loss_of(wave.outputs).backward()
        assert wave.stats.closing is not None
        assert Flaw.FOREIGN_RESET in wave.stats.closing.flaws
        assert not wave.stats.is_complete

    def test_an_optimizer_step_inside_the_wave_ends_the_reading_and_keeps_it_complete(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        (plain,) = train(rank, [group(0)])
        parameter = torch.nn.Parameter(torch.zeros(1, device=meter.counter.device))
        optimizer = torch.optim.AdamW([parameter])
        for wave in rank.forward_micro_batches([group(0)]):
            loss_of(wave.outputs).backward()
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
            held = torch.zeros(64 * MIB, dtype=torch.uint8, device=meter.counter.device)
            del held
        assert wave.stats.is_complete
        assert wave.stats.observed_bytes is not None and plain.stats.observed_bytes is not None
        assert wave.stats.observed_bytes < plain.stats.observed_bytes + MIB

    @pytest.mark.parametrize("before_backward", [True, False])
    def test_a_body_that_raises_leaves_the_rank_usable_and_prices_right(
        self, meter: PeakMeter, before_backward: bool
    ) -> None:
        rank = calibrated(meter)
        before = only_profile(rank)
        with pytest.raises(RuntimeError, match="the caller's own"):
            for wave in rank.forward_micro_batches(groups(3)):
                if not before_backward:
                    loss_of(wave.outputs).backward()
                raise RuntimeError("the caller's own")
        gc.collect()
        assert not rank._open_waves
        after = only_profile(rank)
        assert after.complete_readings == before.complete_readings
        assert after.peak_bytes_per_row >= before.peak_bytes_per_row
        assert all(wave.stats.is_complete for wave in train(rank, groups(3)))

    def test_a_body_that_breaks_off_leaves_the_rank_usable(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        counted = only_profile(rank).complete_readings
        for wave in rank.forward_micro_batches(groups(3)):
            loss_of(wave.outputs).backward()
            break
        gc.collect()
        assert wave.stats.closing is not None
        assert Flaw.BROKE_OFF in wave.stats.closing.flaws
        assert only_profile(rank).complete_readings == counted
        assert all(wave.stats.is_complete for wave in train(rank, groups(3)))

    def test_memory_is_released_before_the_next_admission_unless_the_caller_keeps_it(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        baselines: dict[bool, list[int]] = {}
        for keeps in (False, True):
            kept = []
            baselines[keeps] = []
            for item in groups(4):
                for wave in rank.forward_micro_batches([item]):
                    assert wave.stats.forward is not None
                    baselines[keeps].append(wave.stats.forward.baseline_bytes)
                    loss_of(wave.outputs).backward()
                    if keeps:
                        kept.append(wave.outputs)
            if keeps:
                assert [output.target_log_probs is not None for output in kept[0]]
        assert max(baselines[False]) == min(baselines[False])
        steps = [after - before for before, after in zip(baselines[True], baselines[True][1:], strict=False)]
        assert min(steps) >= 4 * 96  # at least the log-probabilities themselves

    def test_the_loop_variable_does_not_hold_the_last_wave(self, meter: PeakMeter) -> None:
        rank = rank_on(meter)
        watched: list[weakref.ref[torch.Tensor]] = []
        for wave in rank.forward_micro_batches(groups(2)):  # a cold start, then the rest
            assert all(reference() is None for reference in watched)
            tensor = wave.outputs[0].target_log_probs
            assert tensor is not None
            watched.append(weakref.ref(tensor))
            del tensor
            loss_of(wave.outputs).backward()
        assert len(watched) == 2
        with pytest.raises(WaveOverError, match=r"keep wave\.outputs"):
            _ = wave.outputs

    def test_out_of_memory_after_admission_carries_the_admissions_own_numbers(self, meter: PeakMeter) -> None:
        rank = calibrated(meter)
        before = only_profile(rank)
        with pytest.raises(AdmittedOutOfMemoryError) as caught:
            for wave in rank.forward_micro_batches(groups(2)):
                with wave:
                    loss_of(wave.outputs).backward()
                    run_out_of_memory(meter)
        stats = wave.stats
        error = caught.value
        assert error.plan is stats.plan
        assert error.admission is stats.admission
        assert isinstance(error.__cause__, torch.OutOfMemoryError)
        assert f"{stats.plan.wave.packed_rows:,} packed rows" in str(error)
        assert "GiB required of" in str(error)
        # The forward's own reading stands (it was true); the wave that failed taught nothing.
        assert only_profile(rank).complete_readings == before.complete_readings
        assert stats.closing is None
        assert all(wave.stats.is_complete for wave in train(rank, groups(2)))

    def test_gradients_add_up_over_waves(self, meter: PeakMeter) -> None:
        """Several waves give the gradient of one."""
        items = groups(4)
        gradients = []
        for calls in ([items], [[item] for item in items]):
            rank = calibrated(meter)
            model = rank._model
            assert isinstance(model, torch.nn.Module)
            model.zero_grad()
            for call in calls:
                train(rank, call)
            gradients.append(
                torch.cat([value.grad.flatten().float() for value in model.parameters() if value.grad is not None])
            )
        error = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
        assert error < (1e-5 if meter.counter.device.type == "cpu" else 2e-2)
