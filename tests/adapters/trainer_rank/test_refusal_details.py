"""What a refusal says beside its price: what rounded the rows up, what is padding, and what the floor consists of."""

from __future__ import annotations

import pytest

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, TrainerRank
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from adapters.trainer_rank.packed_work import padded_tail_rows
from adapters.wave_loop.errors import WaveRefusedError
from pricing.kernel.quantities import MIB
from pricing.kernel.requests import RequestSpec
from pricing.planner.plan import Batch, PlanRequest, Setting, plan_wave

CONFIG = DecoderConfig(vocabulary=97, hidden=64, layers=4, heads=4, kv_heads=2, head_dim=16, feed_forward=160)


def refusal_of(requests: list[PlanRequest], setting: Setting) -> str:
    plan = plan_wave(Batch([requests]), profiles={}, available_bytes=3, setting=setting)
    assert plan.refusal is not None
    return str(plan.refusal)


def of_rows(rows: int, padded: int = 0) -> PlanRequest:
    spec = RequestSpec(input_shape=(rows,), target_shape=(rows,))
    return PlanRequest(tokens=list(range(rows)), spec=spec, output_bytes=4 * rows, padded_tail_rows=padded)


@pytest.mark.parametrize(("rows", "multiple", "priced"), [(21, 8, 24), (1, 64, 64), (100, 3, 102)])
def test_rows_that_were_rounded_up_are_named_with_multiple_and_topology(rows: int, multiple: int, priced: int) -> None:
    text = refusal_of([of_rows(rows)], Setting(row_multiple=multiple, topology="tp8"))
    assert f"{priced} rows of {rows}: each group is rounded up to a multiple of {multiple} (topology tp8)" in text
    assert "rounded" not in refusal_of([of_rows(priced)], Setting(row_multiple=multiple, topology="tp8"))


def test_padding_at_the_end_is_named_with_what_would_be_left() -> None:
    text = refusal_of([of_rows(40_960, padded=35_960)], Setting())
    assert "35,960 of the 40,960 logical rows are padding" in text and "5,000 would be left" in text
    assert "padding" not in refusal_of([of_rows(5_000)], Setting())


def test_a_cold_refusal_says_which_floor_bound_it(meter: PeakMeter) -> None:
    rank = TrainerRank(Decoder(CONFIG).train(), memory_bytes=48 * MIB, meter=meter, cold_transient_bytes=64 * MIB)
    tokens = [7, *range(1, 60), *[0] * 68]
    labels = [*range(60), *[-100] * 68]
    with pytest.raises(WaveRefusedError) as refused:
        next(rank.forward_micro_batches([Request(tokens=tokens, targets=labels)]))
    text = str(refused.value)
    assert "of the floor, transient of a first wave: 64.00 MiB" in text and "of the floor, saved layer inputs" in text
    assert "68 of the 128 logical rows are padding" in text


@pytest.mark.parametrize(
    ("tokens", "labels", "expected"),
    [
        ([5, 6, 0, 0, 0], [6, 0, -100, -100, -100], 3),
        ([5, 6, 0, 0, 0], [6, 0, 0, -100, -100], 2),
        ([5, 6, 7, 8, 9], [-100] * 5, 0),
        ([0, 0, 0], [-100] * 3, 3),
        ([5, 6], [6, -100], 0),
    ],
)
def test_padding_is_one_token_without_labels_of_interest(tokens: list[int], labels: list[int], expected: int) -> None:
    assert padded_tail_rows(Request(tokens=tokens, targets=labels)) == expected
    assert padded_tail_rows(Request(tokens=tokens, targets=[[label] * 2 for label in labels])) == expected
    assert padded_tail_rows(Request(tokens=tokens, logits=True)) == 0


def test_a_cold_plan_names_the_parts_of_its_floor(meter: PeakMeter) -> None:
    rank = TrainerRank(Decoder(CONFIG).train(), memory_bytes=1024 * MIB, meter=meter, cold_transient_bytes=64 * MIB)
    plan = rank.plan([Request(tokens=list(range(90)), targets=list(range(90)))])
    assert plan.price.binding_term == "cold" and sum(size for _, size in plan.floor_parts) == plan.wave.floor_bytes
    assert [name for name, _ in plan.floor_parts][-1] == "transient of a first wave"
