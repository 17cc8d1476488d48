"""The lines of another implementation's recorded answers, as `pricing.formats.codec` reads them.

`tests/data/peer/README.md` says what they mean. A line may hold more than what is declared here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pricing.formats.codec import Leaf, Natural
from pricing.formats.place import Place
from pricing.kernel.wave import RecurrentGeometry, segment_state_bytes

PACKED_PRICED: Final = "packed_priced:"
"""How the names of the answers on eligibility begin; grad modes and one-layer recompute follow, between colons."""


def _number(data: object, place: Place) -> int | float:
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise place.error("must be a number", data)
    return data


Number = Annotated[float, Leaf(encode=float, decode=_number)]
"""A figure as recorded: that implementation works in doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The recurrent layer that a segment's state is of."""

    value_heads: Natural
    key_heads: Natural
    key_dim: Natural
    value_dim: Natural
    conv_kernel: Natural
    tp: Natural
    dtype_size: Natural

    @property
    def segment_state_bytes(self) -> int:
        """What a segment is charged here."""
        geometry = RecurrentGeometry(
            value_heads=self.value_heads,
            key_heads=self.key_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            conv_kernel=max(1, self.conv_kernel),
            tensor_parallel=self.tp,
            dtype_bytes=self.dtype_size,
        )
        return segment_state_bytes(geometry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A reading. Without logical rows they are the packed ones."""

    packed: int
    logical: Natural | None = None
    output_bytes: Natural
    peak_delta: int
    retained_bytes: int | None = None
    caller_phase: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerProfile:
    """What the readings left behind there."""

    bytes_per_token: Number | None = None
    packed_tokens: int | None = None
    logical_per_packed: Number | None = None
    retained_compute_bytes_per_token: Number | None = None
    warm_bytes_per_token: Number | None = None
    warm_packed_tokens: int | None = None
    warm_logical_per_packed: Number | None = None
    caller_plans: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A wave, and what was answered about it."""

    aim: str | None = None
    packed: int
    logical: Natural | None = None
    segments: Natural
    output_bytes: Natural
    packed_priced: bool
    why: str | None = None
    static_bytes: Natural = 0
    checkpoint_retained: Natural = 0
    required: Natural
    trusted: bool | None = None
    retained: Natural | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Readings, the profile after each and at the end, and queries."""

    geometry: Geometry
    segment_bytes: Number
    observations: tuple[Observation, ...]
    profiles: tuple[PeerProfile | None, ...] | None = None
    profile: PeerProfile | None = None
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a request asks for."""

    top_k: Natural | None = None
    logits: bool = False
    hidden_states: bool = False
    routed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMix:
    """A request, and its mix. What was answered on eligibility has names of its own (`PACKED_PRICED`)."""

    input_shape: tuple[Natural, ...]
    target_shape: tuple[Natural, ...] | None = None
    outputs: Outputs
    key: str
    short: bool


Segment = tuple[list[int], int, int]


def _segment(data: object, place: Place) -> Segment:
    if not isinstance(data, list) or len(data) != 3 or not isinstance(data[0], list):
        raise place.error("must be [rows, start, end]", data)
    members, start, end = data
    return sorted(members), start, end


SegmentField = Annotated[Segment, Leaf(encode=list, decode=_segment)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Rows of tokens, and the prefix tree made of them. A segment is its member rows, its first column, its last."""

    rows: tuple[tuple[int, ...], ...]
    packed_by_depth: tuple[Natural, ...]
    packed_full: Natural
    segments_full: tuple[SegmentField, ...]
    canonical_full: Natural
    canonical_segments: Natural
    order: tuple[Natural, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The made-up machine that waves ran on."""

    row_bytes: Natural
    logical_row_bytes: Natural
    fixed_bytes: Natural
    cold_bytes: Natural
    caller_percent: Natural
    kept_percent: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedWave:
    """A wave that was picked there, and the profile after it ran."""

    start: Natural
    width: Natural
    packed: Natural
    logical: Natural
    segments: Natural
    required: Natural
    cold_start: bool
    subforwards: Natural
    profile: PeerProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWave:
    """The narrowest wave from here, where it was too large."""

    start: Natural
    required: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthSearch:
    """A batch on one machine: completions of prompts, and each wave that was picked."""

    prompts: tuple[Natural, ...]
    completions: tuple[tuple[Natural, ...], ...]
    geometry: Geometry
    budget: Natural
    cheap_estimates: bool
    machine: Machine
    waves: tuple[PickedWave, ...]
    refused: RefusedWave | None = None
