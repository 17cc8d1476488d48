"""First waves of ten Hugging Face decoders, priced before anything was learned: python -m benchmarks.cold_starts

Every decoder is trained in every way below, each in a rank of its own that knows nothing. The rank prices a first item
of random sizes by its forecast and runs it; the CPU counter says what it took. Writes
`spec/evidence/forecast/cold-starts.json`; `--table` makes the tables of its README from it. Needs no GPU; minutes.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from torch import nn

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import Request, TrainerRank

ROOT: Final = Path(__file__).parents[1]
FIGURES: Final = ROOT / "spec" / "evidence" / "forecast" / "cold-starts.json"

VOCABULARY: Final = 1_024
ROOMY_BYTES: Final = 16 << 30
SIZES: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 8_192,
    "pad_token_id": 0,
}
EXPERTS: Final[dict[str, Any]] = {"num_experts_per_tok": 2}

DECODERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Llama": ("Llama", {}),
    "Qwen2": ("Qwen2", {}),
    "Qwen3": ("Qwen3", {}),
    "Gemma2": ("Gemma2", {"sliding_window": 256, "query_pre_attn_scalar": 16}),
    "Phi3": ("Phi3", {}),
    "Olmo2": ("Olmo2", {}),
    "Granite": ("Granite", {"tie_word_embeddings": True}),
    "Mixtral (MoE)": ("Mixtral", EXPERTS | {"num_local_experts": 8}),
    "Qwen3Moe": ("Qwen3Moe", EXPERTS | {"num_experts": 8, "moe_intermediate_size": 48, "decoder_sparse_step": 1}),
    "GptOss (MoE)": ("GptOss", EXPERTS | {"num_local_experts": 8, "sliding_window": 256}),
}
"""Seven dense decoders and three with experts: names, classes, and what they have beside the sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of training or scoring. lora: adapters alone are trained. asks: what every request asks for."""

    lora: bool = False
    recompute: bool = True
    labels: bool = True
    asks: tuple[tuple[str, Any], ...] = ()


WAYS: Final[dict[str, Way]] = {
    "full": Way(),
    "full, no recompute": Way(recompute=False),
    "LoRA": Way(lora=True),
    "logits": Way(lora=True, asks=(("logits", True),)),
    "hidden states": Way(labels=False, asks=(("hidden_states", True),)),
    "hidden states, no gradients": Way(labels=False, asks=(("hidden_states", True), ("grads", False))),
    "labels, no gradients": Way(asks=(("grads", False),)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """One first wave. Bytes are above what was there before it.

    gradient_bytes: of the gradients that it makes, held free beside its price. allocated_bytes: the price of what it
    allocates, which is what the CPU counter counts; required_bytes: with the factor for a footprint, which no CPU has.
    observed_bytes: the highest that the counter saw, gradients included.
    """

    decoder: str
    way: str
    packed_rows: int
    logical_rows: int
    grad_segments: int
    binding_term: str
    forecast_bytes: int
    gradient_bytes: int
    allocated_bytes: int
    required_bytes: int
    observed_bytes: int

    @property
    def forecast_permille(self) -> int:
        """What was forecast, with the gradients, over what was observed: in parts per thousand, rounded down."""
        return 1000 * (self.forecast_bytes + self.gradient_bytes) // self.observed_bytes

    @property
    def price_permille(self) -> int:
        """What is held for it, without the footprint's factor, over what was observed."""
        return 1000 * (self.allocated_bytes + self.gradient_bytes) // self.observed_bytes


def build(decoder: str, way: Way) -> nn.Module:
    """A random decoder in training mode, in fp32."""
    kind, settings = DECODERS[decoder]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES | settings)
    model: Any = getattr(transformers, f"{kind}ForCausalLM")(config).train()
    if way.recompute:
        enable = getattr(model, "activation_checkpointing_enable", None)  # its newer name
        (enable or model.gradient_checkpointing_enable)()
    if way.lora:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    made: nn.Module = model
    return made


def first_item(draw: random.Random, way: Way, most_rows: int) -> list[Request]:
    """A prompt and rollouts, or one long request: at most `most_rows` packed rows."""
    if draw.random() < 0.3:
        lengths = [draw.randrange(most_rows // 8, most_rows)]
        prompt_rows = 0
    else:
        prompt_rows = draw.randrange(most_rows // 16, most_rows // 3)
        lengths = [draw.randrange(most_rows // 64, most_rows // 9) for _ in range(draw.randrange(1, 7))]
    numbers = np.random.default_rng(draw.randrange(1 << 30))
    prompt = numbers.integers(0, VOCABULARY, prompt_rows)
    rows = [np.concatenate([prompt, numbers.integers(0, VOCABULARY, length)]) for length in lengths]
    asks = dict(way.asks)
    return [Request(tokens=row, targets=np.roll(row, -1) if way.labels else None, **asks) for row in rows]


def cold_start(decoder: str, way_name: str, *, most_rows: int, meter: PeakMeter) -> ColdStart:
    """The first wave of a rank that knows nothing, run with the sum of its outputs as the loss."""
    way = WAYS[way_name]
    item = first_item(random.Random(f"{decoder}, {way_name}"), way, most_rows)
    rank = TrainerRank(build(decoder, way), meter=meter, memory_bytes=ROOMY_BYTES)
    for wave in rank.forward_micro_batches([item]):
        stats = wave.stats
        gradient_bytes = stats.budget.held_back_bytes
        wanted = [tensor for output in wave.outputs for tensor in output.tensors() if tensor.requires_grad]
        if wanted:
            torch.stack([tensor.float().sum() for tensor in wanted]).sum().backward()
        del wanted
    looks = [look for look in (stats.forward, stats.closing) if look is not None]
    assert stats.is_complete, (decoder, way_name, looks)
    plan = stats.plan
    return ColdStart(
        decoder=decoder,
        way=way_name,
        packed_rows=plan.wave.packed_rows,
        logical_rows=plan.wave.logical_rows,
        grad_segments=plan.wave.grad_segments,
        binding_term=str(plan.price.allocated.binding_term),
        forecast_bytes=plan.wave.forecast_bytes,
        gradient_bytes=gradient_bytes,
        allocated_bytes=plan.price.allocated.required_bytes,
        required_bytes=plan.price.required_bytes,
        observed_bytes=max(look.peak_bytes - look.baseline_bytes + look.freed_bytes for look in looks),
    )


def run_all(most_rows: int) -> Iterator[ColdStart]:
    for decoder in DECODERS:
        for way in WAYS:
            with meter_for(torch.device("cpu")) as meter:
                yield cold_start(decoder, way, most_rows=most_rows, meter=meter)


def read() -> list[ColdStart]:
    """The cold starts that the committed figures are of."""
    return [ColdStart(**line) for line in json.loads(FIGURES.read_text())["cold_starts"]]


def as_tables(starts: Sequence[ColdStart]) -> str:
    """Price over observed by decoder and way, and forecast over observed by way."""
    lines = [f"| price over observed | {' | '.join(WAYS)} |", "|---|" + "---|" * len(WAYS)]
    for decoder in DECODERS:
        by_way = {start.way: start for start in starts if start.decoder == decoder}
        lines.append(f"| {decoder} | {' | '.join(_ratio(by_way[way].price_permille) for way in WAYS)} |")
    lines += ["", "| forecast over observed | least | median | most |", "|---|---|---|---|"]
    for way in WAYS:
        ratios = sorted(start.forecast_permille for start in starts if start.way == way)
        least, median, most = (_ratio(ratios[at]) for at in (0, len(ratios) // 2, -1))
        lines.append(f"| {way} | {least} | {median} | {most} |")
    return "\n".join(lines) + "\n"


def _ratio(permille: int) -> str:
    return f"{permille / 1000:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only print the tables of the figures that are there")
    parser.add_argument("--most-rows", type=int, default=4_096, help="most packed rows of a first item")
    arguments = parser.parse_args()
    if arguments.table:
        print(as_tables(read()), end="")
        return 0
    torch.set_num_threads(1)
    starts = []
    for start in run_all(arguments.most_rows):
        starts.append(start)
        print(start.decoder, start.way, start.packed_rows, start.forecast_permille, start.price_permille, flush=True)
    FIGURES.write_text(
        json.dumps(
            {
                "command": f"python -m benchmarks.cold_starts --most-rows {arguments.most_rows}",
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "cold_starts": [asdict(start) for start in starts],
            },
            indent=1,
        )
        + "\n"
    )
    return int(any(start.price_permille < 1000 for start in starts))


if __name__ == "__main__":
    raise SystemExit(main())
