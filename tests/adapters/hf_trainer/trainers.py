"""Tiny trainers of `transformers` and TRL, on a CPU, from nothing: no weights, no downloads.

TRL is imported by the trainers that need it: only `make test-trainers` has it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

WORDS = 60


def tokenizer() -> Any:
    vocabulary = {
        word: index for index, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(WORDS))])
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", bos_token="<eos>")


def model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=WORDS + 3, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def text(draw: random.Random, least: int, most: int) -> str:
    return " ".join(f"w{draw.randrange(WORDS)}" for _ in range(draw.randint(least, most)))


def _arguments(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 6,
        "max_steps": 2,
        "learning_rate": 1.0,  # so that parameters tell gradients apart
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,  # TRL turns it on
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "max_grad_norm": 0.0,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "seed": 7,
    } | more


def plain(folder: Path, **more: Any) -> Trainer:
    draw = random.Random(3)
    words = tokenizer()
    rows = []
    for _ in range(24):
        ids = words(text(draw, 4, 40))["input_ids"]
        rows.append({"input_ids": ids, "labels": ids})

    def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(example["input_ids"]) for example in examples)
        padded = [example["input_ids"] + [0] * (longest - len(example["input_ids"])) for example in examples]
        mask = [[1] * len(e["input_ids"]) + [0] * (longest - len(e["input_ids"])) for e in examples]
        ids, masks = torch.tensor(padded), torch.tensor(mask)
        return {"input_ids": ids, "attention_mask": masks, "labels": ids.masked_fill(masks == 0, -100)}

    return Trainer(
        model=model(),
        args=TrainingArguments(**_arguments(folder, **more)),
        train_dataset=rows,
        data_collator=collate,
    )


def sft(folder: Path, **more: Any) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    draw = random.Random(4)
    rows = [{"text": text(draw, 4, 40)} for _ in range(24)]
    return SFTTrainer(
        model=model(),
        args=SFTConfig(**_arguments(folder, **more)),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
    )


def dpo(folder: Path, **more: Any) -> Any:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    draw = random.Random(5)
    rows = [
        {"prompt": text(draw, 3, 9), "chosen": " " + text(draw, 3, 30), "rejected": " " + text(draw, 3, 30)}
        for _ in range(24)
    ]
    return DPOTrainer(
        model=model(),
        ref_model=model(1),
        args=DPOConfig(**_arguments(folder, **more)),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
    )


def grpo(folder: Path, **more: Any) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    draw = random.Random(6)
    rows = [{"prompt": text(draw, 3, 9)} for _ in range(24)]

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(len(set(completion.split()))) for completion in completions]

    settings = {"num_generations": 3, "max_completion_length": 12, "beta": 0.0} | more
    return GRPOTrainer(
        model=model(),
        reward_funcs=reward,
        args=GRPOConfig(**_arguments(folder, **settings)),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
    )
