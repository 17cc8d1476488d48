"""What a refusal says beside its price: what rounded the rows up, what is padding, and what the floor consists of."""

from __future__ import annotations

import pytest

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, TrainerRank
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from adapters.trainer_rank.packed_work import padded_tail_rows
from adapters.wave_loop.errors import WaveRefusedError
from pricing import LAWS, Profile
from pricing.kernel.profile import observe_all
from pricing.kernel.quantities import MIB
from pricing.kernel.requests import RequestSpec, mix_key
from pricing.planner.batch import without_padding
from pricing.planner.plan import Batch, PlanRequest, Setting, plan_wave
from pricing.text import gib_text
from tests.planner.test_width_search import whole_wave

CONFIG = DecoderConfig(vocabulary=97, hidden=64, layers=4, heads=4, kv_heads=2, head_dim=16, feed_forward=160)


LEARNED = observe_all(Profile(), [whole_wave(4_000, 100_000)] * 3)


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


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("available_bytes", "said"), [(1_500_000_000, "which fits"), (10**8, "which does not fit either")]
)
def test_a_refusal_says_what_stripping_would_save(law: str, available_bytes: int, said: str) -> None:
    """The price of the same item without its padding, to the byte; of each of its requests, shared prefix or not."""
    setting = Setting(row_multiple=8)
    padded = [of_rows(40_960, padded=35_960), of_rows(300), of_rows(3_000, padded=1_000)]
    stripped = [of_rows(5_000), of_rows(300), of_rows(2_000)]
    plans = [
        plan_wave(
            Batch([item]),
            profiles=lambda _: LEARNED,
            available_bytes=available_bytes if item is padded else 10**12,
            setting=setting,
            law=LAWS[law],
        )
        for item in (padded, stripped)
    ]
    refusal = plans[0].refusal
    assert refusal is not None and refusal.asked is not None
    assert refusal.asked.unpadded_bytes == plans[1].price.required_bytes
    assert "36,960 of the 44,260 logical rows are padding" in str(refusal) and said in str(refusal)
    saved = plans[0].price.required_bytes - plans[1].price.required_bytes
    assert f"({gib_text(saved)} less)" in str(refusal)


def test_an_item_of_nothing_but_padding_would_cost_nothing() -> None:
    plan = plan_wave(
        Batch([[of_rows(40_960, padded=40_960)]]),
        profiles=lambda _: LEARNED,
        available_bytes=10**8,
        setting=Setting(),
    )
    assert plan.refusal is not None and "without them 0 would be left, priced 0.00 MiB" in str(plan.refusal)


@pytest.mark.parametrize(
    ("input_shape", "target_shape", "left"),
    [
        ((9,), (9,), (6,)),
        ((1, 9), (1, 9), (1, 6)),
        ((9,), (9, 3), (6, 3)),
        ((1, 9), (9, 3), (6, 3)),
        ((9,), None, None),
    ],
)
def test_a_request_without_its_padding(
    input_shape: tuple[int, ...], target_shape: tuple[int, ...] | None, left: tuple[int, ...] | None
) -> None:
    spec = RequestSpec(input_shape=input_shape, target_shape=target_shape, logits=target_shape is None)
    request = PlanRequest(tokens=list(range(9)), spec=spec, output_bytes=90, padded_tail_rows=3)
    stripped = without_padding(request)
    assert stripped.spec.target_shape == left and stripped.spec.logical_rows == 6 == len(stripped.tokens)
    assert (stripped.output_bytes, stripped.padded_tail_rows) == (60, 0)
    assert mix_key(stripped.spec) == mix_key(spec)
    assert without_padding(stripped) is stripped


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
