"""What a bound rank's device shows beside ART's own figures: what is reserved, what is left, how often it ran out.

ART resets the peak counter itself, right before each forward, and keeps account of whole and of broken intervals. So
nothing here resets anything: a wave is looked at where ART looks at it, and what is added is what its allocator took of
the device (the footprint), the cache that is given back before a wave, and the waves that ran out of memory.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from adapters.torch_memory.budget import AcceleratorMemory, BudgetSampler
from adapters.torch_memory.counter import AcceleratorCounter, MemoryCounter, allocator_figures, figure
from adapters.torch_memory.out_of_memory import requested_bytes
from adapters.torch_memory.trust import allocator_refusal
from pricing.kernel.profile import Profile, needs_footprint
from pricing.kernel.quantities import maximum
from pricing.kernel.reading import Reading, ReadingKind, out_of_memory_footprint_bytes
from pricing.kernel.wave import Wave
from pricing.planner.budget import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDevice:
    """The device of one rank: its peak counter, which is read and never reset here; its budget; and how often it ran
    out of memory so far, also where somebody caught it."""

    counter: MemoryCounter
    sampler: BudgetSampler
    failures: Callable[[], int]

    @classmethod
    def of(cls, rank: Any) -> RankDevice | None:
        """The CUDA device of ART's `rank`. None where there is none, or its allocator cannot be read (`trust`)."""
        device: torch.device = rank.device
        if device.type != "cuda" or not torch.cuda.is_available():
            return None
        if allocator_refusal(device) is not None:
            return None
        counter = AcceleratorCounter(device)
        return cls(
            counter=counter,
            sampler=BudgetSampler(AcceleratorMemory(counter.device)),
            failures=lambda: figure(allocator_figures(counter.device), "num_ooms"),
        )


@dataclass(slots=True, kw_only=True, eq=False)
class OpenWave:
    """One plan that runs, from right before its forward on. Figures are bytes.

    wave: as it runs. filed_under: whatever the caller files its readings under.
    available_bytes: what it was admitted against. is_clean: nothing that could be given back lay idle when it began, so
    that its footprint can be read. ends_with_forward: no caller's phase follows. peak_bytes, footprint_bytes: the
    highest allocated and reserved peaks above the baseline so far. seen_peaks: the counter's at the last look (none
    where ART has reset it since). was_reset: somebody else reset the counter in it, so that its peak may be missing.
    """

    plan: weakref.ref[Any]
    wave: Wave
    filed_under: Any
    baseline_bytes: int
    available_bytes: int
    is_clean: bool
    ends_with_forward: bool
    failures_before: int
    budget: Budget
    released_cache: bool
    peak_bytes: int = 0
    footprint_bytes: int = 0
    seen_peaks: tuple[int, ...] = ()
    was_reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at a wave says. footprint_bytes: None where it did not begin clean. was_reset: its peak may be
    missing. failed: the wave, where the device ran out of memory in it and the caller went on."""

    footprint_bytes: int | None
    was_reset: bool = False
    failed: OpenWave | None = None


@dataclass(slots=True)
class Footprints:
    """The waves of one rank that are under way on its device, oldest first: a forward inside the yield of another wave
    is a younger one. `releases` counts the caches that were given back, `release_seconds` what that took on the host.
    """

    device: RankDevice
    releases: int = 0
    release_seconds: float = 0.0
    _open: list[OpenWave] = field(default_factory=list)

    def available_bytes(self) -> int:
        """What a price may be held against: what the driver and the process's own limit still give, and idle cache,
        which is given back before a wave that does not fit without it (INV-17). At least 0."""
        return maximum(0, self.device.sampler.budget().available_bytes)

    def begin(
        self,
        plan: Any,
        wave: Wave,
        profile: Profile,
        *,
        filed_under: Any,
        required_bytes: int,
        available_bytes: int,
        is_split_child: bool,
        ends_with_forward: bool,
    ) -> OpenWave:
        """A plan is about to run: give the cache back where the footprint teaches or does not fit beside it, and take
        the baseline. The counter is reset by ART, after this.

        required_bytes: this plan's price. available_bytes: what the admission was held against, of a child of a split
        together with its sisters; what there is when it begins is then looked up.
        """
        counter, sampler = self.device.counter, self.device.sampler
        self._open = [each for each in self._open if each.plan() is not None]
        for outer in self._open:
            self._look(outer)
            outer.seen_peaks = ()  # ART resets the counter for the younger one, and calls the outer one broken itself
        counter.synchronize()
        budget = sampler.budget()
        teaches = not self._open and needs_footprint(profile, wave)
        released = (teaches or required_bytes > budget.physical_bytes) and counter.releasable() > 0
        if released:
            budget = self._release()
        opened = OpenWave(
            plan=weakref.ref(plan),
            wave=wave,
            filed_under=filed_under,
            baseline_bytes=counter.allocated(),
            available_bytes=min(available_bytes, budget.available_bytes) if is_split_child else available_bytes,
            is_clean=counter.releasable() == 0,
            ends_with_forward=ends_with_forward or is_split_child,
            failures_before=self.device.failures(),
            budget=budget,
            released_cache=released,
        )
        self._open.append(opened)
        return opened

    def look(self, plan: Any, *, ends: bool) -> Look:
        """Look at the wave of `plan`, where ART looks at its peak. ends: its caller's phase is over."""
        opened = next((each for each in self._open if each.plan() is plan), None)
        if opened is None:  # began unseen, or ended as a failure
            return Look(footprint_bytes=None, was_reset=True)
        self._look(opened)
        ends = ends or opened.ends_with_forward
        if ends:
            self._open.remove(opened)
        footprint_bytes = opened.footprint_bytes + self._dropped_bytes(opened)
        return Look(
            footprint_bytes=footprint_bytes if opened.is_clean else None,
            was_reset=opened.was_reset,
            failed=opened if ends and self.device.failures() > opened.failures_before else None,
        )

    def drop(self, opened: OpenWave) -> None:
        """A wave is over that gives no reading."""
        if opened in self._open:
            self._open.remove(opened)

    def failed(self) -> list[OpenWave]:
        """Waves that nothing was heard of since, and in which the device ran out of memory: the caller's loss or
        backward did. They are over."""
        if not self._open:
            return []
        failures = self.device.failures()
        failed = [each for each in self._open if failures > each.failures_before]
        self._open = [each for each in self._open if each not in failed]
        return failed

    def out_of_memory(self, opened: OpenWave, error: BaseException | None) -> Reading:
        """The reading of a wave that ran out of memory (INV-16, INV-18): what it at least needed.

        error: what it raised, caught while the wave still holds what it held; None where it is long over, so that what
        is reserved now says nothing of it.
        """
        counter = self.device.counter
        self.drop(opened)
        reserved_bytes = 0
        if counter.refusal() is None:
            self._look(opened)
            if error is not None:
                reserved_bytes = maximum(0, counter.reserved() - opened.baseline_bytes)
        return Reading.of(
            opened.wave,
            peak_delta_bytes=opened.peak_bytes,
            footprint_bytes=out_of_memory_footprint_bytes(
                available_bytes=opened.available_bytes,
                reserved_bytes=maximum(opened.peak_bytes, reserved_bytes),
                requested_bytes=requested_bytes(error) or 0,
            ),
            grads=opened.wave.workload.grads,
            kind=ReadingKind.OUT_OF_MEMORY,
        )

    def _look(self, opened: OpenWave) -> None:
        """Bank the peaks, and notice one that fell since the last look: a reset that was neither ours nor ART's."""
        counter = self.device.counter
        if counter.refusal() is not None:
            opened.was_reset = True
            return
        counter.synchronize()
        peaks = counter.peaks()
        opened.was_reset |= any(now < seen for now, seen in zip(peaks, opened.seen_peaks, strict=False))
        opened.seen_peaks = peaks
        opened.peak_bytes = maximum(opened.peak_bytes, peaks[0] - opened.baseline_bytes)
        opened.footprint_bytes = maximum(opened.footprint_bytes, counter.reserved_peak() - opened.baseline_bytes)

    def _dropped_bytes(self, opened: OpenWave) -> int:
        """How far live bytes lie under the baseline: so much was let go in the wave, which may have filled it."""
        if self.device.counter.refusal() is not None:
            return 0
        return maximum(0, opened.baseline_bytes - self.device.counter.allocated())

    def _release(self) -> Budget:
        """Give the cache back; counter and sampler both learn what does not come back."""
        started = time.perf_counter()
        self.device.counter.release_cache()
        budget = self.device.sampler.release().budget
        self.releases += 1
        self.release_seconds += time.perf_counter() - started
        return budget
