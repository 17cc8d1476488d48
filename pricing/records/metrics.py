"""Metrics of a wave: one small summary, a plain dict with slash names, and two ways out of the process.

    recorder = Recorder(metrics=[wandb_logger(run.log), PrometheusExporter()])

`WaveSummary` holds whole numbers only; fractions are made when the dict is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pricing.formats.codec import Count, Signed, Text, encode
from pricing.kernel.law import BindingTerm
from pricing.records.record import DecisionRecord, Event

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Metrics = dict[str, int | float]

SUMMARY_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveSummary:
    """What a chart needs of one wave: a line of the spool's wave file.

    estimate_bytes: what was held against `available_bytes`. observed_bytes: peak above the baseline, None where none
    was read; `complete` is whether that reading saw the whole wave. footprint_bytes: what the allocator took of the
    device above the baseline, where a reading that began with a released cache says (never in lines of 0.1).
    after_out_of_memory: how many waves in a row had run out of memory right before it; such a wave is another try.
    """

    version: Count
    name: Text
    index: Count
    event: Event
    law: Text
    verdict: Text
    binding_term: Text
    packed_priced: bool
    packed_rows: Count
    logical_rows: Count
    grad_segments: Count
    estimate_bytes: Count
    retained_estimate_bytes: Count
    available_bytes: Signed
    free_bytes: Signed | None
    reusable_cache_bytes: Count | None
    width: Count | None
    subforwards: Count | None
    observed_bytes: Count | None
    complete: bool
    footprint_bytes: Count | None = None
    after_out_of_memory: Count = 0

    @classmethod
    def of(cls, record: DecisionRecord) -> WaveSummary:
        budget, observed = record.budget, record.observed
        return cls(
            version=SUMMARY_VERSION,
            name=record.name,
            index=record.index,
            event=record.event,
            law=record.law,
            verdict=record.verdict,
            binding_term=record.price.binding_term,
            packed_priced=not record.price.ineligible,
            packed_rows=record.wave.packed_rows,
            logical_rows=record.wave.logical_rows,
            grad_segments=record.wave.grad_segments,
            estimate_bytes=record.required_bytes,
            retained_estimate_bytes=record.price.retained_bytes,
            available_bytes=record.available_bytes,
            free_bytes=None if budget is None else budget.free_bytes,
            reusable_cache_bytes=None if budget is None else budget.reusable_cache_bytes,
            width=record.width,
            subforwards=record.subforwards,
            observed_bytes=None if observed is None else observed.peak_delta_bytes,
            complete=observed is not None and observed.complete,
            after_out_of_memory=record.after_out_of_memory,
            footprint_bytes=None if observed is None else observed.footprint_bytes,
        )

    def line(self) -> dict[str, object]:
        """The summary as JSON values, for the spool's wave file."""
        values = encode(self)
        assert isinstance(values, dict), "a dataclass is written as an object"
        return values

    @property
    def headroom_bytes(self) -> int:
        return self.available_bytes - self.estimate_bytes

    @property
    def used_bytes(self) -> int | None:
        """What the wave was seen to take of the device: its footprint where that was read, else its peak."""
        return self.observed_bytes if self.footprint_bytes is None else self.footprint_bytes

    @property
    def is_another_try(self) -> bool:
        """Whether it ran in the place of a wave that had run out of memory."""
        return self.after_out_of_memory > 0 and self.event in (Event.OBSERVED, Event.ABANDONED)

    @property
    def is_cold(self) -> bool:
        """Whether nothing was learned when the wave was priced: such a price promises nothing."""
        return self.binding_term in (BindingTerm.COLD, BindingTerm.NOTHING_TO_RUN)

    @property
    def is_under(self) -> bool:
        """Whether the wave took more than a price that something was learned for: what must not happen."""
        return not self.is_cold and self.used_bytes is not None and self.used_bytes > self.estimate_bytes

    @property
    def over_fraction(self) -> float | None:
        """estimate / used - 1; None where nothing was used above the baseline."""
        return self.estimate_bytes / self.used_bytes - 1 if self.used_bytes else None

    def metrics(self) -> Metrics:
        """The wave's metrics by slash name. A figure that is not known is left out, never 0."""
        known: dict[str, int | float | None] = {
            "memory/wave": self.index,
            "memory/estimate_bytes": self.estimate_bytes,
            "memory/retained_estimate_bytes": self.retained_estimate_bytes,
            "memory/available_bytes": self.available_bytes,
            "memory/headroom_bytes": self.headroom_bytes,
            "memory/free_bytes": self.free_bytes,
            "memory/reusable_cache_bytes": self.reusable_cache_bytes,
            "memory/observed_bytes": self.observed_bytes,
            "memory/footprint_bytes": self.footprint_bytes,
            "memory/error_bytes": None if self.used_bytes is None else self.estimate_bytes - self.used_bytes,
            "memory/over_fraction": self.over_fraction,
            "memory/under": None if self.observed_bytes is None else int(self.is_under),
            "memory/packed_rows": self.packed_rows,
            "memory/logical_rows": self.logical_rows,
            "memory/sharing": self.logical_rows / self.packed_rows if self.packed_rows else None,
            "memory/grad_segments": self.grad_segments,
            "memory/packed_priced": int(self.packed_priced),
            "memory/width": self.width,
            "memory/subforwards": self.subforwards,
            "memory/refused": int(self.event is Event.REFUSED),
            "memory/out_of_memory": int(self.event is Event.OUT_OF_MEMORY),
            "memory/after_out_of_memory": self.after_out_of_memory,
        }
        return {name: value for name, value in known.items() if value is not None}


def binding_family(binding_term: str) -> str:
    """A binding term without what stands in brackets behind it (a frontier term names its band): one of a few."""
    return binding_term.split("[")[0].strip()


class MetricsSink(Protocol):
    """Takes the summary of each wave once it is over (or refused)."""

    def __call__(self, summary: WaveSummary, /) -> None: ...


def wandb_logger(log: Callable[[Metrics], object]) -> MetricsSink:
    """A sink for anything shaped like `wandb.Run.log`: it is called with one dict a wave.

    No step is passed: the caller's own steps stay his, and `memory/wave` can be chosen as the x axis
    (`run.define_metric("memory/*", step_metric="memory/wave")`).
    """

    def sink(summary: WaveSummary, /) -> None:
        log(summary.metrics())

    return sink


class PrometheusExporter:
    """A sink that keeps gauges of the latest wave and counters of all waves. Needs the `prometheus` extra.

    Gauges are the metric names with `/` as `_` (`memory_estimate_bytes`), labelled by the recorder's name. Counters:
    `memory_waves_total` by law, event and binding term, `memory_under_total`. A gauge whose figure is unknown for the
    latest wave is NaN, never stale. `registry` defaults to the library's own; serve it as you serve your others.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge

        registry = REGISTRY if registry is None else registry
        self._gauges = {
            name: Gauge(name.replace("/", "_"), help_text, ["name"], registry=registry)
            for name, help_text in _GAUGES.items()
        }
        self._waves = Counter(
            "memory_waves", "Waves decided", ["name", "law", "event", "binding_term"], registry=registry
        )
        self._under = Counter("memory_under", "Waves whose peak exceeded their price", ["name"], registry=registry)

    def __call__(self, summary: WaveSummary, /) -> None:
        metrics = summary.metrics()
        for name, gauge in self._gauges.items():
            gauge.labels(summary.name).set(metrics.get(name, float("nan")))
        self._waves.labels(summary.name, summary.law, str(summary.event), binding_family(summary.binding_term)).inc()
        self._under.labels(summary.name).inc(int(summary.is_under))


_GAUGES: Final = {
    "memory/wave": "Number of the latest wave",
    "memory/estimate_bytes": "Price of the latest wave above its baseline",
    "memory/observed_bytes": "Observed peak of the latest wave above its baseline",
    "memory/footprint_bytes": "What the allocator took of the device for the latest wave, where that was read",
    "memory/over_fraction": "Price over observed peak, less 1",
    "memory/available_bytes": "Budget the latest wave was held against",
    "memory/headroom_bytes": "Budget less price",
    "memory/free_bytes": "Bytes physically free when the latest wave was planned",
    "memory/reusable_cache_bytes": "Bytes cached by the allocator and fit for reuse",
    "memory/packed_rows": "Packed rows of the latest wave",
    "memory/sharing": "Logical rows over packed rows",
    "memory/packed_priced": "1 if the latest wave was priced by packed rows",
}
