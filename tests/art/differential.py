"""The original against the bound rank: the same history of readings, the same questions, both answers and the
interval between them.

The interval is the laws' (section 4): ours is never below the original's by more than 2 bytes (it truncates
doubles), and never above by more than sigma * (rate + rows priced + segments + 4): a rate rounded up by one
byte a row, and rows rounded up to a whole row.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, Final

from adapters.art.bound_rank import Binding, bind, unbind
from adapters.art.interface import require_interface
from pricing.evidence.trace import TraceWave
from pricing.kernel.price import Price, allocated_price
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import TRUST_GROWTH
from pricing.kernel.reading import Reading
from pricing.kernel.requests import SINGLE_TARGET
from pricing.kernel.wave import Wave
from tests.art.original import Geometry, planning_rank

SIGMA: Final = Fraction(11, 10)
BELOW: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One reading as ART's profile update is given it."""

    packed_rows: int
    logical_rows: int
    output_bytes: int
    peak_delta_bytes: int
    retained_bytes: int | None
    caller_phase: bool
    grad_segments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One layout to price and to retain. `facts` go to ART's static floors."""

    packed_rows: int
    logical_rows: int | None
    grad_segments: int
    output_bytes: int
    checkpoint_retained_bytes: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Readings of one signature in order, and the questions asked after each prefix named in `asked_after`."""

    geometry: Geometry
    signature: Mapping[str, Any]
    lessons: tuple[Lesson, ...]
    questions: tuple[tuple[int, Question], ...]
    """(number of lessons learned before it, question), in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Two answers to one question. `above_bytes` is how far ours may lie above the original's."""

    what: str
    original_bytes: int
    ours_bytes: int
    above_bytes: Fraction
    binding_term: str

    @property
    def difference_bytes(self) -> int:
        return self.ours_bytes - self.original_bytes

    @property
    def is_inside(self) -> bool:
        return -BELOW <= self.difference_bytes <= self.above_bytes


class Pair:
    """Two ranks of one geometry, one left as it is and one to be bound, kept for many histories.

    The original's pricing is the warm law; another `law` is for showing that the comparison can fail.
    """

    def __init__(self, geometry: Geometry, law: str = "warm") -> None:
        self.law = law
        self.original = planning_rank(geometry)
        self.bound = planning_rank(geometry)
        self.implementation = require_interface(self.original)

    def ask(self, history: History) -> list[Answer]:
        """Every answer of both ranks over `history`, each rank starting from nothing."""
        self.original._memory_profiles, self.bound._memory_profiles = {}, {}
        binding = bind(self.bound, law=self.law)
        try:
            return list(self._ask(history, binding))
        finally:
            unbind(self.bound)

    def _ask(self, history: History, binding: Binding) -> Iterable[Answer]:
        signature = self.implementation._MemorySignature(**history.signature)
        learned = 0
        for after, question in history.questions:
            self.teach((self.original, self.bound), history.lessons[learned:after], signature)
            learned = max(learned, after)
            yield from self._answers(question, signature, binding)

    def _answers(self, question: Question, signature: Any, binding: Binding) -> Iterable[Answer]:
        theirs, ours = (_required(rank, question, signature) for rank in (self.original, self.bound))
        wave, profile = binding.last_priced
        explained = allocated_price(wave, profile)
        above = _above(explained, wave)
        yield Answer(
            what="required",
            original_bytes=theirs,
            ours_bytes=ours,
            above_bytes=above,
            binding_term=explained.binding_term,
        )
        if question.logical_rows is not None:
            yield Answer(
                what="retained",
                original_bytes=_retained(self.original, question, signature, theirs),
                ours_bytes=_retained(self.bound, question, signature, ours),
                above_bytes=max(above, _retained_above(wave, profile)),
                binding_term=explained.binding_term,
            )

    @staticmethod
    def teach(ranks: Sequence[Any], lessons: Sequence[Lesson], signature: Any) -> None:
        """Give every lesson, in order, to every rank."""
        for lesson in lessons:
            for rank in ranks:
                _teach(rank, lesson, signature)


def _teach(rank: Any, lesson: Lesson, signature: Any) -> None:
    plan = SimpleNamespace(
        packed_tokens=lesson.packed_rows,
        active_logical_tokens=lesson.logical_rows,
        output_bytes=lesson.output_bytes,
        grad_segment_count=lesson.grad_segments,
        signature=signature,
    )
    rank._update_memory_profile(
        plan, lesson.peak_delta_bytes, retained_bytes=lesson.retained_bytes, caller_phase=lesson.caller_phase
    )


def _required(rank: Any, question: Question, signature: Any) -> int:
    answer: int = rank._estimate_required_memory_bytes_from_values(
        packed_tokens=question.packed_rows,
        output_bytes=question.output_bytes,
        signature=signature,
        logical_tokens=question.logical_rows,
        gdn_segments=question.grad_segments,
        **question.facts,
    )
    return answer


def _retained(rank: Any, question: Question, signature: Any, required: int) -> int:
    answer: int = rank._retained_memory_bytes(
        signature,
        packed_tokens=question.packed_rows,
        logical_tokens=question.logical_rows,
        output_bytes=question.output_bytes,
        required=required,
        checkpoint_retained_bytes=question.checkpoint_retained_bytes,
    )
    return answer


def _above(explained: Price, wave: Wave) -> Fraction:
    """sigma * (rate + rows + S + 4), by the term where that is most: the original may bind on another than ours."""
    rates_and_rows = (term.bytes_per_row + term.rows for term in explained.terms)
    return SIGMA * (max(rates_and_rows, default=0) + wave.grad_segments + 4)


def _retained_above(wave: Wave, profile: Profile) -> Fraction:
    rate = profile.retained_bytes_per_row or 0
    return SIGMA * (rate + max(wave.packed_rows, wave.logical_rows) + wave.grad_segments + 4)


# --- recorded histories -----------------------------------------------------------------------------------


def recorded_history(trace: Sequence[TraceWave]) -> History:
    """A recorded trace as a history: each wave is asked about, then taught (its forward's return, the whole wave)."""
    lessons: list[Lesson] = []
    questions = []
    for recorded in trace:
        wave = recorded.wave
        question = Question(
            packed_rows=wave.packed_rows,
            logical_rows=wave.logical_rows,
            grad_segments=wave.grad_segments,
            output_bytes=wave.output_bytes,
        )
        questions.append((len(lessons), question))
        lessons.extend(_lesson_of(reading) for reading in recorded.readings)
    signature = {
        "topology": (1, 1, 1, 1),
        "planner_coefficients": (1, None),
        "slot_group_count": 1,
        "request_mix": (SINGLE_TARGET,),
        "grad_enabled": True,
        "grad_modes": (True,),
    }
    return History(
        geometry=Geometry(gdn_layers=24), signature=signature, lessons=tuple(lessons), questions=tuple(questions)
    )


def _lesson_of(reading: Reading) -> Lesson:
    return Lesson(
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        output_bytes=reading.output_bytes,
        peak_delta_bytes=reading.peak_delta_bytes,
        retained_bytes=reading.retained_bytes,
        caller_phase=reading.is_complete,
        grad_segments=reading.grad_segments,
    )


# --- random histories ----------------------------------------------------------------------------------------

GEOMETRIES: Final = (
    Geometry(),
    Geometry(gdn_layers=24),
    Geometry(gdn_layers=24, topology=(1, 2, 1, 1)),
    Geometry(
        gdn_layers=6, layers=8, hidden=2048, topology=(2, 3, 1, 1), value_heads=33
    ),  # a fraction of a byte a segment
    Geometry(hidden=4096, ffn=12_288, layers=8, heads=32, query_groups=8, channels=128, vocabulary=151_936),
    Geometry(recompute=(None, None, None), gdn_layers=12),
    Geometry(recompute=("selective", None, None)),
    Geometry(recompute=("full", "uniform", 2)),
    Geometry(recompute=("full", "block", 1), topology=(1, 4, 1, 1)),
    Geometry(hidden=64, layers=2, heads=4, query_groups=2, channels=16, ffn=128, vocabulary=512),
)


def random_history(seed: int) -> History:
    """A history of 0 to 12 readings of mixed sizes and sharing, with 8 questions spread over it. The same for
    the same seed.

    Complete readings of gradient waves always show compute: one that shows none is `interrupted` here and
    complete in the original.
    """
    draw = random.Random(seed)
    geometry = GEOMETRIES[seed % len(GEOMETRIES)]
    scale = draw.choice((64, 2_000, 60_000, 400_000))
    slope, fixed = draw.choice((3, 20_000, 350_000)), draw.choice((0, 50 << 20, 1 << 30))
    lessons = tuple(_random_lesson(draw, scale, slope, fixed) for _ in range(draw.randint(0, 12)))
    asked = sorted(draw.randint(0, len(lessons)) for _ in range(8))
    return History(
        geometry=geometry,
        signature=_random_signature(draw, geometry),
        lessons=lessons,
        questions=tuple((after, _random_question(draw, scale)) for after in asked),
    )


def _random_signature(draw: random.Random, geometry: Geometry) -> dict[str, Any]:
    grads = draw.choice(((True,), (True,), (True,), (True, True), (False, True), (False,), ()))
    mixes = ("target:single", "target:(4,)", "target:single+logits", "topk:8", "hidden", "inactive")
    eligible = draw.random() < 0.6
    return {
        "topology": geometry.topology,
        "planner_coefficients": (1, None),
        "slot_group_count": len(grads),
        "request_mix": (
            draw.choice((("target:single",), ("inactive", "target:single")))
            if eligible
            else tuple(sorted(draw.sample(mixes, draw.randint(1, 3))))
        ),
        "grad_enabled": any(grads),
        "grad_modes": grads,
        "short_requests": not eligible and draw.random() < 0.4,
    }


def _random_rows(draw: random.Random, scale: int) -> tuple[int, int]:
    """Packed and logical rows: padded, unshared or shared up to 100 times."""
    packed = max(1, int(scale * 2 ** draw.uniform(-6, 1)))
    sharing = draw.choice(
        (Fraction(1), Fraction(1), Fraction(draw.randint(10, 90), 10), Fraction(draw.randint(1, 100)))
    )
    padding = draw.choice((0, 0, 0, draw.randint(0, 7)))
    return packed + padding, int(packed * sharing)


def _random_lesson(draw: random.Random, scale: int, slope: int, fixed: int) -> Lesson:
    packed, logical = _random_rows(draw, scale)
    outputs = draw.choice((0, 4 * logical, draw.randint(0, 1 << 28)))
    caller_phase = draw.random() < 0.5
    compute = fixed + packed * draw.randint(1, slope)
    if not caller_phase and draw.random() < 0.1:
        compute = -draw.randint(0, outputs)
    peak = outputs + compute
    retained = None if caller_phase or draw.random() < 0.3 else int(peak * draw.uniform(0, 1.2))
    return Lesson(
        packed_rows=packed,
        logical_rows=logical,
        output_bytes=outputs,
        peak_delta_bytes=peak,
        retained_bytes=retained,
        caller_phase=caller_phase,
        grad_segments=draw.randint(0, 200),
    )


def _random_question(draw: random.Random, scale: int) -> Question:
    packed, logical = _random_rows(draw, scale * draw.choice((1, 1, 4, TRUST_GROWTH, 40)))
    facts: dict[str, Any] = {"group_rows": draw.choice(((), ((packed, True),), ((packed, False),)))}
    if draw.random() < 0.5:
        facts["head_workspace_bytes"] = draw.randint(0, 1 << 30)
        facts["checkpoint_floor"] = (draw.randint(0, 1 << 32), draw.randint(0, 1 << 30))
    if draw.random() < 0.3:
        facts["checkpoint_memory"] = (packed * draw.randint(0, 1 << 16), draw.randint(0, 1 << 30))
        facts["include_checkpoint_input_gradient"] = False
    if draw.random() < 0.3:
        facts["retained_tokens"] = max(1, packed // 2)
    return Question(
        packed_rows=packed,
        logical_rows=None if draw.random() < 0.1 else logical,
        grad_segments=draw.choice((0, 1, draw.randint(2, 400))),
        output_bytes=draw.choice((0, 4 * logical, draw.randint(0, 1 << 30))),
        checkpoint_retained_bytes=draw.choice((0, packed * draw.randint(0, 1 << 16))),
        facts=facts,
    )


def compare(seeds: Sequence[int], law: str = "warm") -> dict[int, list[Answer]]:
    """The answers to `random_history` of every seed."""
    pairs: dict[Geometry, Pair] = {}
    answers = {}
    for seed in seeds:
        history = random_history(seed)
        pair = pairs.get(history.geometry) or pairs.setdefault(history.geometry, Pair(history.geometry, law))
        answers[seed] = pair.ask(history)
    return answers
