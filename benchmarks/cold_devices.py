"""Cold starts on simulated devices of random sizes: python -m benchmarks.cold_devices --starts 1000

Each start is a rank that knows nothing, with a random first item, model, loss and device. The device has between half
and twice of what is held for the item, and runs out for real: one that hands out to the byte, and two that keep
segments as PyTorch's allocators do (classic and expandable ones). One start in five is called with a loss that takes
more than was forecast.

Promises, each checked for each start:

- a wave that its forecast let in does not run out of memory where the forecast holds: where a roomy device of the same
  kind shows a peak and a footprint within what was held;
- what is refused is refused before any of it runs, with the forecast among its parts, and is let in by a device that
  has what its refusal asks for;
- where the forecast does not hold, the start runs whole all the same or ends in a typed error; `train_batch` leaves
  gradients as they were where it raises, and tries nothing twice that it cannot narrow; the rank can be used again.

Writes `spec/evidence/forecast/cold-devices.json`; `--table` makes the table of its README from it. Exits with 1 where a
promise was broken. Needs no GPU; minutes.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from adapters.forecast.forecaster import Forecaster
from adapters.torch_memory import BudgetSampler, PeakMeter, SimulatedMemory, StorageCounter, simulated_allocator
from adapters.torch_memory.simulated_allocator import AllocatorCounter, AllocatorMemory, SimulatedAllocator
from adapters.trainer_rank import (
    AdmittedOutOfMemoryError,
    MicroBatch,
    OutOfMemoryRefusedError,
    Request,
    RequestOutputs,
    TrainerRank,
    WaveRefusedError,
)
from adapters.trainer_rank.binding import SKIP_THE_CHECK
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from adapters.wave_loop.wave import WaveStats
from benchmarks.h200.survival_ranks import Scarce
from pricing.kernel.quantities import ceil_div
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL
from pricing.planner.rules import Verdict
from pricing.records.metrics import WaveSummary
from pricing.records.record import Event
from pricing.records.recorder import Recorder

ROOT: Final = Path(__file__).parents[1]
FIGURES: Final = ROOT / "spec" / "evidence" / "forecast" / "cold-devices.json"
CPU: Final = torch.device("cpu")
ROOMY_BYTES: Final = 8 << 30
VOCABULARY: Final = 1_024
BEFORE: Final = 2.0
"""What every element of a gradient is that was there before."""

MODELS: Final[dict[str, dict[str, Any]]] = {
    "full": {},
    "full, no recompute": {"recomputes": False},
    "LoRA": {"lora_rank": 8},
}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "labels": {"targets": True},
    "logits": {"targets": True, "logits": True},
    "hidden states, no gradients": {"hidden_states": True, "grads": False},
}
SEGMENT_SIZES: Final = (
    "SMALL_BYTES",
    "SMALL_SEGMENT_BYTES",
    "LARGE_SEGMENT_BYTES",
    "OWN_SEGMENT_BYTES",
    "OWN_SEGMENT_STEP_BYTES",
)
SMALLER: Final = 64
"""Waves of these models are some ten MiB, so segments of 20 MiB would be most of what they take of a device."""

DEVICES: Final = ("exact", "classic segments", "expandable segments")


def build(name: str) -> Decoder:
    settings = dict(MODELS[name])
    recompute = ONE_LAYER_FULL if settings.pop("recomputes", True) else NO_RECOMPUTE
    torch.manual_seed(0)
    config = DecoderConfig(
        vocabulary=VOCABULARY, hidden=64, layers=3, heads=4, kv_heads=2, head_dim=16, feed_forward=160, **settings
    )
    return Decoder(config, recompute=recompute).train()


def forecasters(models: Iterable[str] = tuple(MODELS)) -> dict[str, Forecaster]:
    """One a model, for all its ranks: a trace takes seconds. Its lines price every item but the first by sizes that
    were not traced."""
    return {name: Forecaster(build(name), CPU) for name in models}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One draw. share: of what is held for the item, what the device has. extra: what the caller's loss takes that was
    not forecast, as a share of what is held. owned: by `train_batch`. has_gradients: there are some before."""

    seed: int
    model: str
    kind: str
    device: str
    share: float
    extra: float
    owned: bool
    has_gradients: bool

    @classmethod
    def drawn(cls, seed: int) -> Start:
        draw = random.Random(seed)
        return cls(
            seed=seed,
            model=draw.choice(list(MODELS)),
            kind=draw.choice(list(KINDS)),
            device=draw.choice(DEVICES),
            share=draw.uniform(0.5, 2.0),
            extra=draw.uniform(0.3, 3.0) if draw.random() < 0.2 else 0.0,
            owned=draw.random() < 0.5,
            has_gradients=draw.random() < 0.3,
        )

    def item(self, most_rows: int) -> list[Request]:
        """One long request, or a prompt and rollouts."""
        draw, numbers = random.Random(f"item {self.seed}"), np.random.default_rng(self.seed)
        prompt_rows = 0 if draw.random() < 0.4 else draw.randrange(1, most_rows // 3)
        most, count = (most_rows // 9, draw.randrange(1, 7)) if prompt_rows else (most_rows, 1)
        prompt = numbers.integers(0, VOCABULARY, prompt_rows)
        return [
            self.request(np.concatenate([prompt, numbers.integers(0, VOCABULARY, draw.randrange(1, most))]))
            for _ in range(count)
        ]

    def request(self, row: Any) -> Request:
        asks = dict(KINDS[self.kind])
        return Request(tokens=row, targets=np.roll(row, -1) if asks.pop("targets", False) else None, **asks)


@contextmanager
def small_segments() -> Iterator[None]:
    """Simulated allocators with segments of 1/64 inside."""
    sizes = {name: getattr(simulated_allocator, name) for name in SEGMENT_SIZES}
    try:
        for name, size in sizes.items():
            setattr(simulated_allocator, name, size // SMALLER)
        yield
    finally:
        for name, size in sizes.items():
            setattr(simulated_allocator, name, size)


class Device:
    """A simulated device with a counter. `memory` is what its sampler reads."""

    def __init__(self, kind: str) -> None:
        self.allocator = None
        self.counter = StorageCounter()
        if kind != "exact":
            self.allocator = SimulatedAllocator(ROOMY_BYTES, expandable=kind == "expandable segments")
            self.counter = AllocatorCounter(self.allocator)
        self.limit(ROOMY_BYTES)

    def limit(self, limit_bytes: int) -> None:
        """From now on the device has this much."""
        self.limit_bytes = limit_bytes
        self.memory: Any
        if self.allocator is not None:
            self.allocator.limit_bytes = limit_bytes
        if isinstance(self.counter, AllocatorCounter):
            self.memory = AllocatorMemory(self.counter)
        else:
            self.memory = SimulatedMemory(self.counter, limit_bytes)

    def with_room_for(self, wave_bytes: int) -> None:
        """From now on a wave of `wave_bytes` fits beside what is there and the 3 % that are kept back."""
        self.limit(ceil_div((self.counter.reserved() + wave_bytes) * 100, 97) + 1)

    def running_out(self, meter: PeakMeter) -> AbstractContextManager[Any]:
        """Around what runs. Allocators run out by themselves."""
        if self.allocator is not None:
            return nullcontext()
        mode = Scarce(meter, self.limit_bytes)
        mode.armed = True
        return mode


@contextmanager
def rank_on(device: Device, model: nn.Module, forecaster: Forecaster, seen: list[WaveSummary]) -> Iterator[TrainerRank]:
    """A rank that knows nothing. seen: takes a summary of each decision."""
    with PeakMeter(device.counter) as meter:
        rank = TrainerRank(
            model,
            meter=meter,
            sampler=BudgetSampler(device.memory),
            device=CPU,
            check=SKIP_THE_CHECK,
            recorder=Recorder(metrics=[seen.append]),
        )
        rank._forecaster = forecaster
        yield rank


def loss_of(outputs: Sequence[RequestOutputs], extra_bytes: int) -> Tensor:
    """The sum that was forecast, and a moment of `extra_bytes` that were not."""
    if extra_bytes:
        torch.empty(extra_bytes // 4)
    wanted = [tensor.sum() for output in outputs for tensor in output.tensors() if tensor.requires_grad]
    return torch.stack(wanted).sum() if wanted else torch.zeros((), requires_grad=True).sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one run of an item ended.

    how: "ran", "refused", "ran out" (in the caller's own loop) or "given up" (refused after it ran out). verdict: of
    its first wave. held_bytes: what was held free for it, gradients included. peak_bytes, footprint_bytes: what it took
    above what was there before, where it ran. asked_bytes: what a refusal asks for. broken: promises that were.
    """

    how: str
    verdict: str
    failures: int
    held_bytes: int
    peak_bytes: int = 0
    footprint_bytes: int = 0
    asked_bytes: int = 0
    broken: tuple[str, ...] = ()

    @property
    def is_within(self) -> bool:
        """Whether it ran and stayed within what was held."""
        return self.how == "ran" and max(self.peak_bytes, self.footprint_bytes) <= self.held_bytes


def run(start: Start, forecaster: Forecaster, most_rows: int, *, room_bytes: int | None = None) -> Ended:
    """The start's item on a device of its own, with room for `room_bytes` or for the start's share of what is held."""
    device, seen = Device(start.device), list[WaveSummary]()
    with rank_on(device, build(start.model), forecaster, seen) as rank:
        trained = [value for value in rank._gradients.parameters if value.requires_grad]
        item, has_grads = start.item(most_rows), KINDS[start.kind].get("grads", True)
        if start.has_gradients:
            for value in trained:
                value.grad = torch.full_like(value, BEFORE)
        # train_batch sets those that are there aside, so that a wave makes them anew
        makes_gradients = has_grads and (start.owned or not start.has_gradients)
        gradient_bytes = rank._gradients.trained_bytes if makes_gradients else 0
        price_bytes = rank.plan([item]).price.required_bytes
        device.with_room_for(round(start.share * (price_bytes + gradient_bytes)) if room_bytes is None else room_bytes)
        rank.sampler = BudgetSampler(device.memory)
        reserved_bytes, stats, error = device.counter.reserved(), list[WaveStats](), None
        with device.running_out(rank.meter):
            try:
                _run(rank, item, start, round(start.extra * price_bytes), stats)
            except (WaveRefusedError, AdmittedOutOfMemoryError) as raised:
                error = raised
        ended = Ended(
            how=_how(error),
            verdict=seen[0].verdict,
            failures=sum(each.event is Event.OUT_OF_MEMORY for each in seen),
            held_bytes=seen[0].estimate_bytes + gradient_bytes,
            peak_bytes=0 if error else max(_peak_bytes(each) for each in stats),
            footprint_bytes=0 if error else device.counter.reserved_peak() - reserved_bytes,
            asked_bytes=price_bytes + gradient_bytes if isinstance(error, WaveRefusedError) else 0,
            broken=tuple(_broken(error, stats, start, trained)),
        )
        del error
        if ended.how != "ran":
            device.limit(ROOMY_BYTES)
            rank.sampler = BudgetSampler(device.memory)
            _run(rank, [start.request(np.zeros(16, dtype=np.int64))], replace(start, owned=False), 0, stats)
            if not stats[-1].is_complete:
                ended = replace(ended, broken=(*ended.broken, "the next wave is not read whole"))
    return ended


def _run(rank: TrainerRank, item: list[Request], start: Start, extra_bytes: int, stats: list[WaveStats]) -> None:
    """One call with one item. stats: of the waves that reached the caller."""

    def step(wave: MicroBatch) -> Tensor:
        stats.append(wave.stats)
        return loss_of(wave.outputs, extra_bytes)

    if start.owned:
        rank.train_batch([item], step)
        return
    for wave in rank.forward_micro_batches([item]):
        with wave:
            step(wave).backward()


def _how(error: Exception | None) -> str:
    if error is None:
        return "ran"
    if isinstance(error, OutOfMemoryRefusedError):
        return "given up"
    return "refused" if isinstance(error, WaveRefusedError) else "ran out"


def _peak_bytes(stats: WaveStats) -> int:
    """What the counter saw above what was there before the wave, gradients included."""
    looks = [look for look in (stats.forward, stats.closing) if look is not None]
    return max(look.peak_bytes - look.baseline_bytes + look.freed_bytes for look in looks)


def _broken(
    error: Exception | None, stats: list[WaveStats], start: Start, trained: list[nn.Parameter]
) -> Iterator[str]:
    """Promises of a start that raised, by itself."""
    if error is None:
        return
    how, text = _how(error), str(error)
    if how == "refused" and (stats or (isinstance(error, WaveRefusedError) and error.failures)):
        yield "refused after some of it ran"
    if how == "refused" and "forecast, without its safety factor: " not in text:
        yield "refused without the forecast's parts"
    if how == "ran out" and start.owned:
        yield "an error of the device reached the caller of train_batch"
    if start.owned or how == "refused":
        before = BEFORE if start.has_gradients else None
        if any(
            (None if value.grad is None else value.grad.unique().tolist()) != (before and [before]) for value in trained
        ):
            yield "gradients are not as they were"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kind of end, and how many starts came to it.

    first: how the first wave came to run, "let in", "tried" (its forecast did not fit) or "refused". holds: whether the
    forecast held; None where that was not seen.
    """

    device: str
    first: str
    holds: bool | None
    how: str
    failures: int
    starts: int


FIRST: Final = {
    Verdict.COLD_START: "let in",
    Verdict.SPLIT: "let in as a split",
    Verdict.PROBE: "tried",
    Verdict.REFUSE: "refused",
}


def judged(start: Start, forecaster: Forecaster, most_rows: int) -> tuple[Line, list[str]]:
    """One start, and what was promised of it and not kept."""
    ended = run(start, forecaster, most_rows)
    broken, holds = list(ended.broken), None
    if ended.how == "ran" and not ended.failures:
        holds = ended.is_within
    if ended.how == "refused":
        again = run(start, forecaster, most_rows, room_bytes=ended.asked_bytes)
        broken += again.broken
        if again.how == "refused":
            broken.append("refused on a device with what it asked for")
        holds = _holds(start, forecaster, most_rows, again.held_bytes) if again.failures else again.is_within
        if again.failures and holds:
            broken.append("ran out although the forecast holds")
    if ended.failures and ended.verdict != Verdict.PROBE:
        holds = _holds(start, forecaster, most_rows, ended.held_bytes)
        if holds:
            broken.append("ran out although the forecast holds")
    line = Line(
        device=start.device,
        first=FIRST[Verdict(ended.verdict)],
        holds=holds,
        how=ended.how,
        failures=ended.failures,
        starts=1,
    )
    return line, broken


def _holds(start: Start, forecaster: Forecaster, most_rows: int, held_bytes: int) -> bool:
    """Whether what the start takes on a roomy device lies within `held_bytes`."""
    roomy = run(start, forecaster, most_rows, room_bytes=ROOMY_BYTES // 2)
    assert roomy.how == "ran" and not roomy.failures, roomy
    return max(roomy.peak_bytes, roomy.footprint_bytes) <= held_bytes


def run_all(seeds: Sequence[int], most_rows: int, *, says: bool = False) -> tuple[list[Line], list[str]]:
    """Starts by how they ended, and every broken promise with its seed."""
    made, tally, broken = forecasters(), Counter[Line](), list[str]()
    for seed in seeds:
        start = Start.drawn(seed)
        with small_segments():
            line, found = judged(start, made[start.model], most_rows)
        tally[line] += 1
        broken += [f"{start}: {promise}" for promise in found]
        if says and (found or seed % 50 == 0):
            print(seed, line, found, flush=True)
    ordered = sorted(
        tally, key=lambda line: tuple(map(str, (line.first, line.holds, line.how, line.failures, line.device)))
    )
    return [replace(line, starts=tally[line]) for line in ordered], broken


def as_table(lines: Sequence[Line]) -> str:
    """How starts ended, all devices together."""
    tally = Counter[tuple[str, bool | None]]()
    ends: dict[tuple[str, bool | None], Counter[str]] = {}
    for line in lines:
        key = line.first, line.holds
        tally[key] += line.starts
        how = "ran" if not line.failures else "ran narrower"
        ends.setdefault(key, Counter())[line.how if line.how != "ran" else how] += line.starts
    rows = [
        "| first wave | forecast holds | starts | ran | ran out, then ran | ran out, refused | ran out in the loop |"
    ]
    rows.append("|---|---|---|---|---|---|---|")
    said = {True: "yes", False: "no", None: "not seen"}
    for key in sorted(tally, key=lambda key: (key[0], str(key[1]))):
        counts = [ends[key][how] for how in ("ran", "ran narrower", "given up", "ran out")]
        rows.append(f"| {key[0]} | {said[key[1]]} | {tally[key]} | {' | '.join(map(str, counts))} |")
    return "\n".join(rows) + "\n"


def read() -> tuple[list[Line], list[str]]:
    """What the committed figures say."""
    written = json.loads(FIGURES.read_text())
    return [Line(**line) for line in written["ends"]], written["broken"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only print the table of the figures that are there")
    parser.add_argument("--starts", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first start")
    parser.add_argument("--most-rows", type=int, default=2_048, help="most packed rows of a first item")
    arguments = parser.parse_args()
    if arguments.table:
        print(as_table(read()[0]), end="")
        return 0
    torch.set_num_threads(1)
    seeds = range(arguments.first, arguments.first + arguments.starts)
    lines, broken = run_all(seeds, arguments.most_rows, says=True)
    document = {
        "command": f"python -m benchmarks.cold_devices --starts {arguments.starts} --most-rows {arguments.most_rows}",
        "torch": torch.__version__,
        "ends": [asdict(line) for line in lines],
        "broken": broken,
    }
    FIGURES.write_text(json.dumps(document, indent=1) + "\n")
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
