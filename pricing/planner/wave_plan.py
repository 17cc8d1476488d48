"""A wave's decision and everything it was made from, as plain data: a plan says it, a record keeps it.

What was priced is what runs: `WavePlan.layout` gives the layout, and its rows are the shape that was priced.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing.kernel.price import Price
from pricing.kernel.profile import Profile
from pricing.kernel.requests import Signature
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch
from pricing.planner.curve import WaveShape
from pricing.planner.layout import Layout, layout_of
from pricing.planner.refusal import Refusal
from pricing.planner.rules import Verdict, held_bytes
from pricing.planner.split import RungTried, SplitChild


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthTried:
    """One width that the search asked about, with its own figures in bytes.

    learned: whether anything was learned of its signature (true also where there is nothing to run). trusted: whether
    its packed rows are within trust growth of what was (never where nothing was). fits: feasible.
    """

    width: int
    wave: Wave
    signature: Signature
    required_bytes: int
    available_bytes: int
    learned: bool
    trusted: bool
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTest:
    """What a probe is judged by: whether this signature had one, the narrowest wave as if nothing were learned or
    forecast, whether the run survives that it runs out of memory, what complete readings say of the wave in bytes (None
    where there are none), and whether a wave of its signature ran out of memory."""

    had_probe: bool
    cold: Wave
    survives: bool = False
    witnessed_bytes: int | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePlan:
    """One wave's decision and everything it was made from. Plain data: it can be recorded and replayed.

    start, width: its items. requests: their indices in the batch. wave, price, profile, signature: what was priced,
    and by what. shape: the layout's rows (its packed rows differ from the wave's where the busiest rank was priced).
    agreed_width: the width ranks agreed on; 0 where some rank's narrowest wave does not fit, `UNBOUNDED_WIDTH` where
    every rank runs all it has left. tried, consulted: widths in the order they were asked about, and the profile of
    each signature among them. subforwards: the largest number of sub-forwards of any rank, 1 unless a rank splits.
    refused_elsewhere: this rank could have run, another cannot. probe: where the narrowest wave does not fit whole.
    floor_is_wrong: a complete reading lay under the static floor, which therefore took no part.
    floor_parts: what the static floor F consists of, by name, in bytes: of a `cold` price, what bound it.
    """

    start: int
    width: int
    requests: range
    verdict: Verdict
    wave: Wave
    shape: WaveShape
    signature: Signature
    profile: Profile
    price: Price
    available_bytes: int
    row_multiple: int
    agreed_width: int
    tried: tuple[WidthTried, ...]
    consulted: tuple[tuple[Signature, Profile], ...]
    rungs: tuple[RungTried, ...] = ()
    children: tuple[SplitChild, ...] = ()
    subforwards: int = 1
    refusal: Refusal | None = None
    refused_elsewhere: bool = False
    probe: ProbeTest | None = None
    floor_is_wrong: bool = False
    floor_parts: tuple[tuple[str, int], ...] = ()

    @property
    def runs(self) -> bool:
        return self.verdict is not Verdict.REFUSE

    @property
    def next_start(self) -> int:
        """First item after this wave."""
        return self.start + self.width

    @property
    def required_bytes(self) -> int:
        """What is held against the budget: the price, or the rung's cost for a split."""
        cost = self.rungs[-1].cost_bytes if self.rungs else None
        return held_bytes(self.verdict, self.price.required_bytes, cost)

    @property
    def headroom_bytes(self) -> int:
        """Budget left over; negative for a probe, which runs over its price, and for a refusal."""
        return self.available_bytes - self.required_bytes

    def layout(self, batch: Batch) -> Layout:
        """The layout this wave was priced with."""
        layout = layout_of(batch, self.requests, self.row_multiple)
        assert layout.packed_rows == self.shape.packed_rows, (layout.packed_rows, self.shape)
        return layout

    def child_layouts(self, batch: Batch) -> list[Layout]:
        """The layouts of a split's sub-forwards, in order."""
        return [layout_of(batch, child.requests, self.row_multiple) for child in self.children]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Waves over a whole batch with the profile held fixed. Refused items are waves too, of verdict `refuse`.

    stopped: why planning ended before the last item (what follows depends on what a wave teaches), or None.
    """

    waves: tuple[WavePlan, ...]
    unplanned_items: int
    stopped: str | None

    @property
    def refused(self) -> tuple[WavePlan, ...]:
        return tuple(wave for wave in self.waves if not wave.runs)
