"""What the check at binding costs: seconds and memory, on a decoder of a given size with random weights.

    python -m benchmarks.h200.binding_check --out binding.jsonl

The default shape is that of an 8 B decoder (Llama: hidden 4,096, 32 layers, vocabulary 128,256) in bf16. Bound
with the check, without it, and with it again, as the first check of a process may pay for more; an ordinary forward is
run before.
"""

from __future__ import annotations

import time

import torch

from adapters.trainer_rank import bind_model
from adapters.trainer_rank.binding import CHECK_AT_BINDING, SKIP_THE_CHECK
from benchmarks.h200.waves import Lines, common_arguments, prepared


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=128_256)
    arguments = parser.parse_args()
    lines = Lines(arguments.out, arguments.seconds)
    device = prepared(arguments)
    model = an_llama(device, arguments.hidden, arguments.layers, arguments.vocabulary, small=arguments.small)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with torch.no_grad():
        model(torch.zeros(1, 64, dtype=torch.long, device=device))
    for check in (CHECK_AT_BINDING, SKIP_THE_CHECK, CHECK_AT_BINDING):
        before_bytes = _synchronized(device)
        started = time.perf_counter()
        bind_model(model, check=check)
        peak_bytes = _synchronized(device, peak=True)
        line = {
            "check": check,
            "parameters": parameters,
            "seconds": time.perf_counter() - started,
            "peak_delta_bytes": peak_bytes - before_bytes,
        }
        lines.write(line)
        print(line, flush=True)


def an_llama(device: torch.device, hidden: int, layers: int, vocabulary: int, *, small: bool) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=211 if small else vocabulary,
        hidden_size=32 if small else hidden,
        intermediate_size=48 if small else 7 * hidden // 2,
        num_hidden_layers=2 if small else layers,
        num_attention_heads=4 if small else hidden // 128,
        num_key_value_heads=2 if small else hidden // 512,
        max_position_embeddings=8192,
    )
    torch.set_default_dtype(torch.float32 if small else torch.bfloat16)
    try:
        with device:
            model: torch.nn.Module = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)
    return model.train()


def _synchronized(device: torch.device, *, peak: bool = False) -> int:
    """Allocated bytes now, or their peak since the last call, when the device is done; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    figure: int = torch.cuda.max_memory_allocated(device) if peak else torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return figure


if __name__ == "__main__":
    main()
