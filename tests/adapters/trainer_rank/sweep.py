"""A seeded attack on the check at binding: random tiny models of every causal class that transformers lists.

python -m tests.adapters.trainer_rank.sweep --draws 12 --output spec/evidence/families-sweep.json

Each draw is a family of `families.FAMILIES` with settings at random: heads and groups, switches, windows and kinds of
layers, caps, scales, rotary kinds, dropout under the name it has there, attention implementation, mode, an adapter, a
head exchanged after binding. It is refused, or compared with the ordinary forward on a random tree with paths several
times longer than the check's own, in log-probabilities and gradients. `wrong` and `died` must stay empty. Each class
runs in a process of its own, with a limit on memory and time.
"""

from __future__ import annotations

import argparse
import collections
import inspect
import json
import logging
import os
import resource
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.rows import PackedRows, tree_rows
from tests.adapters.trainer_rank.families import (
    FAMILIES,
    VOCABULARY,
    Family,
    gradients,
    packed_log_probs,
    plain_log_probs,
)
from tests.adapters.trainer_rank.support import CPU

POSITIONS = 512
"""Positions of the models: many times what the check runs, so that what begins with length shows."""

WRONG_LOG_PROB = 0.02
"""Above this a difference is no rounding: what is wrong is wrong by tenths."""
WRONG_GRADIENT = 0.02

MEMORY_BYTES = 3 << 30
SECONDS_A_DRAW = 60

CHOICES: dict[str, tuple[Any, ...]] = {
    "num_key_value_heads": (1, 2, 4),
    "sliding_window": (1, 3, 8, 31, 100, 4096),
    "attention_chunk_size": (2, 8, 64, 4096),
    "logits_scaling": (0.25, 8.0),
    "logit_scale": (0.0625, 2.0),
    "final_logit_softcapping": (None, 3.0),
    "attn_logit_softcapping": (None, 2.0),
    "embedding_multiplier": (0.5, 6.0),
    "residual_multiplier": (0.3, 1.0),
    "attention_multiplier": (0.05, 1.0),
    "partial_rotary_factor": (0.5, 1.0),
    "attention_dropout": (0.0, 0.0, 0.0, 0.1),
    "hidden_dropout": (0.0, 0.0, 0.0, 0.1),
    "hidden_dropout_prob": (0.0, 0.0, 0.0, 0.1),
    "attention_probs_dropout_prob": (0.0, 0.0, 0.0, 0.1),
    "resid_pdrop": (0.0, 0.0, 0.0, 0.1),
    "layerdrop": (0.0, 0.0, 0.0, 0.1),
    "router_jitter_noise": (0.0, 0.0, 0.0, 0.1),
    "num_experts_per_tok": (1, 2, 3),
}
SWITCHES = (
    *("tie_word_embeddings", "attention_bias", "use_sliding_window", "use_qk_norm", "qk_layernorm", "mlp_bias"),
    *("parallel_attn", "alibi", "multi_query", "new_decoder_architecture", "norm_topk_prob", "use_bias", "qkv_bias"),
    *("scale_attn_by_inverse_layer_idx", "scale_attn_weights", "reorder_and_upcast_attn", "use_parallel_residual"),
    *("attention_qkv_bias", "qk_norm", "use_qkv_bias", "use_mem_rope", "do_layer_norm_before", "is_causal"),
    *("use_cache", "output_router_logits", "use_bidirectional_attention", "is_decoder", "attn_output_gate"),
)
ROPES: tuple[dict[str, Any] | None, ...] = (
    None,
    None,
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one random model came to. kind: exact, refused, wrong, died or not built."""

    family: str
    seed: int
    kind: str
    reason: str = ""
    log_prob: float = 0.0
    gradient: float = 0.0


def settings_at_random(family: Family, random: np.random.Generator) -> dict[str, Any]:
    """Some of what the family's configuration has, set to something else."""
    config_class = getattr(transformers, family.config)
    known = set(inspect.signature(config_class.__init__).parameters) | set(
        getattr(config_class, "__dataclass_fields__", ())
    )
    changes: dict[str, Any] = {}
    if "max_position_embeddings" in known:
        changes["max_position_embeddings"] = POSITIONS
    changes |= {name: POSITIONS for name in ("n_positions", "n_ctx", "max_seq_len") if name in known}
    for name, values in CHOICES.items():
        if name in known and random.random() < 0.4:
            changes[name] = values[random.integers(len(values))]
    for name in SWITCHES:
        if name in known and random.random() < 0.3:
            changes[name] = bool(random.integers(2))
    kinds = family.settings.get("layer_types")
    if kinds and random.random() < 0.5:
        changes["layer_types"] = [kinds[random.integers(len(kinds))] for _ in kinds]
    elif "layer_types" in known and "sliding_window" in known and not kinds and random.random() < 0.4:
        changes["layer_types"] = [("sliding_attention", "full_attention")[random.integers(2)] for _ in range(2)]
    rope = ROPES[random.integers(len(ROPES))]
    if rope is not None and "rope_parameters" in known and "rope_parameters" not in family.settings:
        changes["rope_parameters"] = rope | {"rope_theta": 1e4}
    if random.random() < 0.5:
        changes["attn_implementation"] = "eager"
    return changes


def a_random_tree(random: np.random.Generator, vocabulary: int) -> PackedRows:
    """Up to four levels, branches of one row beside some of a hundred, requests that end inside others."""
    count = int(random.integers(4, 9))
    parents = [-1, *(int(random.integers(-1, at)) for at in range(1, count))]
    segments = [random.integers(0, vocabulary, int(random.choice([1, 2, 9, 30, 90]))) for _ in range(count)]
    ends = sorted(set(range(count)) - set(parents)) + ([0] if random.random() < 0.5 else [])
    return tree_rows(segments, parents, ends, CPU)


def drawn(family: Family, seed: int) -> Draw:
    """One random model, bound and compared."""
    random = np.random.default_rng([seed, len(family.name)])
    known: dict[str, Any] = {"family": family.name, "seed": seed}
    try:
        model = family.build(**settings_at_random(family, random))
    except Exception as error:  # a configuration that the class itself refuses
        return Draw(kind="not built", reason=f"{type(error).__name__}", **known)
    if random.random() < 0.2:
        model.eval()
    try:
        model(input_ids=torch.tensor([[1, 2, 3]]), use_cache=False)
    except Exception as error:
        return Draw(kind="not built", reason=f"its own forward: {type(error).__name__}", **known)
    outer: Any = model
    if random.random() < 0.2:
        try:
            outer = _adapted(model, random)
        except Exception as error:
            return Draw(kind="not built", reason=f"its adapter: {type(error).__name__}", **known)
    try:
        bound = bind_model(outer)
    except UnsupportedModelError as error:
        return Draw(kind="refused", reason=str(error).split(" cannot run shared rows: ")[-1][:120], **known)
    except Exception as error:
        return Draw(kind="died", reason=f"at binding: {type(error).__name__}: {str(error)[:160]}", **known)
    try:
        if random.random() < 0.2:
            _change_head(model, random)
    except Exception as error:  # transformers' own: peft's head cannot be resized
        return Draw(kind="not built", reason=f"its other head: {type(error).__name__}", **known)
    try:
        rows = a_random_tree(random, min(VOCABULARY, bound.model_facts().vocabulary))
        plain = plain_log_probs(outer, rows)
        wanted = gradients(outer, plain)
        if random.random() < 0.5 and model.supports_gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        packed = packed_log_probs(bound, rows)
        got = gradients(outer, packed)
        assert got.keys() == wanted.keys(), "other parameters have gradients"
        return _compared(packed, plain, got, wanted, known)
    except Exception as error:
        return Draw(kind="died", reason=f"{type(error).__name__}: {str(error)[:160]}", **known)


def _compared(
    packed: Tensor, plain: Tensor, got: dict[str, Tensor], wanted: dict[str, Tensor], known: dict[str, Any]
) -> Draw:
    log_prob = float((packed - plain).detach().abs().max())
    size = sum(float(value.double().square().sum()) for value in wanted.values()) ** 0.5
    apart = sum(float((got[name] - value).double().square().sum()) for name, value in wanted.items()) ** 0.5
    gradient = apart / max(size, 1e-30)
    is_right = log_prob < WRONG_LOG_PROB and gradient < WRONG_GRADIENT
    return Draw(kind="exact" if is_right else "wrong", log_prob=log_prob, gradient=gradient, **known)


def _adapted(model: Any, random: np.random.Generator) -> Any:
    import peft

    names = sorted({name.split(".")[-1] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)})
    chosen = [name for name in names if random.random() < 0.5] or names[:1]
    if not chosen:
        return model
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=chosen, init_lora_weights=False)).train()


def _change_head(model: Any, random: np.random.Generator) -> None:
    """Another vocabulary, or another head of the same."""
    if random.random() < 0.5:
        model.resize_token_embeddings(VOCABULARY + 13)
        return
    head = model.get_output_embeddings()
    if isinstance(head, torch.nn.Linear):
        model.set_output_embeddings(torch.nn.Linear(head.in_features, head.out_features, bias=head.bias is not None))


def draws_of(family: Family, seeds: range) -> list[Draw]:
    """All of a family's draws, in a process of their own: some classes take any memory they can get."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        here = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (here + MEMORY_BYTES,) * 2)
        with os.fdopen(writer, "w") as out:
            for seed in seeds:
                signal.alarm(SECONDS_A_DRAW)
                draw = drawn(family, seed)
                fields = {name: getattr(draw, name) for name in Draw.__dataclass_fields__}
                out.write(json.dumps(fields) + "\n")
                out.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        found = [Draw(**json.loads(line)) for line in lines]
    os.waitpid(process, 0)
    if len(found) < len(seeds):
        seed = seeds[len(found)]
        found.append(Draw(family=family.name, seed=seed, kind="not built", reason="over the limit of memory or time"))
    return found


def figures(draws: list[Draw]) -> dict[str, Any]:
    kinds = collections.Counter(draw.kind for draw in draws)
    exact = [draw for draw in draws if draw.kind == "exact"]
    reasons = collections.Counter(draw.reason for draw in draws if draw.kind == "refused")
    return {
        "transformers": transformers.__version__,
        "classes": len({draw.family.split(",")[0] for draw in draws}),
        "models": len(draws),
        "kinds": dict(sorted(kinds.items())),
        "classes_with_an_exact_model": len({draw.family.split(",")[0] for draw in exact}),
        "largest_log_prob_difference": max((draw.log_prob for draw in exact), default=0.0),
        "largest_gradient_difference": max((draw.gradient for draw in exact), default=0.0),
        "wrong_or_died": [
            f"{draw.family} seed {draw.seed}: {draw.kind} {draw.reason} {draw.log_prob:.1e} {draw.gradient:.1e}"
            for draw in draws
            if draw.kind in ("wrong", "died")
        ],
        "refusals": dict(reasons.most_common(40)),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=12, help="random models of each family")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="families whose name contains this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    drawn(FAMILIES[0], 0)  # imports, before processes part
    seeds = range(options.first_seed, options.first_seed + options.draws)
    began = time.monotonic()
    draws = [draw for family in FAMILIES if options.only in family.name for draw in draws_of(family, seeds)]
    found = figures(draws) | {"draws_a_family": options.draws, "first_seed": options.first_seed}
    text = json.dumps(found, indent=2)
    print(text)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    if options.output is not None:
        options.output.write_text(text + "\n")
    return 1 if found["wrong_or_died"] else 0


if __name__ == "__main__":
    sys.exit(main())
