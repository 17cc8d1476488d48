"""What is proven where: theorems, CrossHair harnesses, probes and checks, by law, for the runner and for `spec/`."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from proofs.solver.proof import CHECKS, LEMMAS, THEOREMS, Check, Lemma, Theorem

ROOT: Final = Path(__file__).resolve().parent.parent

FOLDERS: Final = MappingProxyType(
    {
        "reachable": "reachable",
        "inv01_packed_rows": "INV-1",
        "inv02_other_quantities": "INV-2",
        "inv03_bounds": "INV-3",
        "inv04_clamp": "INV-4",
        "inv05_more_sharing": "INV-5",
        "inv06_warm_floor": "INV-6",
        "inv07_warm_fit": "INV-7",
        "inv08_coverage": "INV-8",
        "inv09_ratchets": "INV-9",
        "inv10_order": "INV-10",
        "inv11_retained": "INV-11",
        "inv12_safety": "INV-12",
        "inv13_requests": "INV-13",
        "inv14_replay": "INV-14",
        "inv15_two_quantities": "INV-15",
        "inv16_out_of_memory": "INV-16",
        "inv17_available": "INV-17",
        "inv18_each_error": "INV-18",
        "inv19_merging": "INV-19",
        "inv20_liveness": "INV-20",
        "affine": "affine",
        "shares": "shares",
        "head": "head",
        "frontier": "frontier",
        "assembly": "assembly",
        "any_number": "any number",
        "any_number_footprints": "any number",
        "device": "device",
        "device_frontier": "device",
        "made_gradients": "device",
        "planner": "planner",
        "twin": "twin",
        "second_opinion": "second opinion",
        "refuted": "refuted",
        "mistakes": "mistakes",
    }
)
"""Folder of proofs -> the law it is about. A folder's modules register what they prove when imported."""

MODULES: Final = ("theorem", "probe", "structure", "floats")


@dataclass(frozen=True, slots=True)
class Harness:
    """One CrossHair harness: a function with a PEP 316 contract."""

    law: str
    module: str
    name: str
    line: int
    last: int


@cache
def load() -> tuple[Sequence[Lemma], Sequence[Theorem], Sequence[Check]]:
    """Import every folder's modules; return what they registered, in order of the folders."""
    importlib.import_module("proofs.lemmas")
    for folder in FOLDERS:
        for module in MODULES:
            if (ROOT / "proofs" / folder / f"{module}.py").exists():
                importlib.import_module(f"proofs.{folder}.{module}")
    return tuple(LEMMAS), tuple(THEOREMS), tuple(CHECKS)


def harnesses() -> Iterator[Harness]:
    """Every CrossHair harness, found by its contract in the source (nothing is imported)."""
    for folder, law in FOLDERS.items():
        path = ROOT / "proofs" / folder / "crosshair_harness.py"
        if path.exists():
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and "post:" in (ast.get_docstring(node) or ""):
                    yield Harness(
                        law,
                        f"proofs.{folder}.crosshair_harness",
                        node.name,
                        node.lineno,
                        node.end_lineno or node.lineno,
                    )


def names() -> Iterator[tuple[bool, str]]:
    """(whether it is CrossHair's, name) of everything, in the order of a run."""
    lemmas, theorems, checks = load()
    every: list[Lemma | Theorem | Check] = [*lemmas, *theorems, *checks]
    yield from ((False, item.name) for item in every)
    for harness in harnesses():
        yield True, harness.name


def path_of(module: str) -> str:
    """Repository path of a module of the proofs."""
    return module.replace(".", "/") + ".py"


def entries() -> Iterator[tuple[str, str, str, str]]:
    """(column, law, name, repository path) for `spec/traceability.md`: "theorems", "CrossHair", "probes"."""
    _, theorems, checks = load()
    for theorem in theorems:
        column = "theorems" if theorem.expected == "proven" else "probes"
        yield column, theorem.law, theorem.name, path_of(theorem.module)
    for check in checks:
        yield "theorems", check.law, check.name, path_of(check.module)
    for harness in harnesses():
        yield "CrossHair", harness.law, harness.name, path_of(harness.module)


_THREE_FACTORS: Final = "a product of three unknowns; z3 needs a tenth of a second, cvc5 1.4 more than ten seconds"

CVC5_UNDECIDED: Final[dict[str, str]] = {
    "credits_are_paid_for_by_compute": _THREE_FACTORS,
    "a_knee_that_is_reached_covers_fewer_rows": _THREE_FACTORS,
    "a_lower_quotient_rounds_up_no_higher": "two quotients by two unknowns; likewise",
    "what_is_lacking_by_row_is_less_of_what_holds_more": _THREE_FACTORS,
    "what_is_under_a_compute_or_rate_is_within_reach": _THREE_FACTORS,
    "a_pair_of_charges_by_row": _THREE_FACTORS,
    "a_compute_that_reaches_the_knee_is_at_least_the_lift": _THREE_FACTORS,
    "a_peak_within_every_scaling_of_a_reading_is_within_its_bound": _THREE_FACTORS,
    "one_scale_keeps_proportions": _THREE_FACTORS,
    "a_rate_through_fewer_rows_covers": _THREE_FACTORS,
    "a_bound_of_the_arrays_is_the_bound": _THREE_FACTORS,
    "a_front_keeps_one_that_is_nowhere_above_each_it_drops": "cvc5 answers unknown to some of its many small questions",
}
"""Theorems that z3 proves and cvc5 does not decide in its time, each with the reason. None may be refuted."""

CROSSHAIR_UNDECIDED: Final[dict[str, str]] = {
    "a_bound_never_falls_as_packed_rows_grow": "products of two unknowns: confirmed, in up to 30 s on a busy machine",
}
"""Harnesses that CrossHair explores without a counterexample but does not confirm over all paths, with the reason."""

_MANY_PATHS: Final = "an identity of two runs over hundreds of paths, most of them contradictory"

_WHOLE: Final = "a whole of many small products and quotients, whose parts cvc5 decides; asked it takes minutes"

CVC5_NOT_ASKED: Final[dict[str, str]] = {
    "an_admitted_wave_within_reach_stays_within_its_price": "asked for 100 s it did not decide all 14 questions",
    "the_footprint_of_an_admitted_wave_within_reach_stays_within_its_price": "the same theorem of footprints",
    "the_price_after_any_further_reading_covers_a_remembered_one": _WHOLE,
    "the_price_right_after_a_reading_covers_it": _WHOLE,
    "the_frontier_price_after_its_first_bound_covers_the_reading_that_made_it": _WHOLE,
    "required_bytes_after_a_reading_cover_it_whatever_bands_there_were": _WHOLE,
    "the_shipped_frontier_of_two_bands_prices_at_the_least_of_their_lifted_bounds": _MANY_PATHS,
    "the_explained_price_is_the_hot_path_s_under_any_safety_factor": _MANY_PATHS,
    "the_explained_price_of_the_default_law_is_the_hot_path_s": _MANY_PATHS,
}
"""Theorems that z3 alone decides, because asking cvc5 takes too long, each with the reason."""
