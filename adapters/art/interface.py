"""What this adapter relies on in OpenPipe ART's `TrainerRank`, and the check that it is there.

The methods named here are not a public interface, so a release may change them at will. Everything that the
adapter calls, overrides or takes for granted is written down once, below, and compared with the live object
before anything is overridden: a rank of another shape is refused as a whole, never bound in part.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final

from pricing.kernel.errors import PricingError
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, SHORT_REQUEST_ROWS, TRUST_GROWTH

SUPPORTED_VERSION: Final = "0.5.23"
"""The release of `openpipe-art` that the interface below was read from and that the differential tests run
against.
"""

METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "_estimate_required_memory_bytes_from_values": (
            "self, *, packed_tokens, output_bytes, signature, logical_tokens=None, gdn_segments=0, group_rows=(), "
            "slot_refs=None, head_workspace_bytes=0, checkpoint_floor=(0, 0), retained_tokens=None, "
            "include_checkpoint_input_gradient=True, checkpoint_memory=None"
        ),
        "_retained_memory_bytes": (
            "self, signature, *, packed_tokens, logical_tokens, output_bytes, required, checkpoint_retained_bytes=0"
        ),
        "_update_memory_profile": "self, plan, peak_delta_bytes, *, retained_bytes, caller_phase=False",
        "_run_flat_plan_with_memory_tracking": "self, plan, *, check, context",
        "_available_memory_bytes": "self, sample=None",
        "_plan_cost": "self, plan",
        "_one_layer_recompute": "self",
        "_gdn_segment_layer_bytes": "self",
    }
)
"""Methods called or overridden, with their parameters (annotations left out)."""

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "_MemorySignature": (
            "topology planner_coefficients slot_group_count request_mix grad_enabled grad_modes slot_shapes "
            "short_requests"
        ),
        "_MemoryProfile": (
            "bytes_per_token packed_tokens logical_per_packed retained_fraction retained_compute_bytes_per_token "
            "warm_bytes_per_token warm_packed_tokens warm_logical_per_packed caller_plans"
        ),
    }
)
"""Dataclasses read or made, with their fields."""

CONSTANTS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "_MEMORY_SAFETY_FACTOR": 1.1,
        "_TEST_HOOKS_ENV": "ART_TRAINER_RANK_TEST_HOOKS",
        "_MEMORY_PROFILE_TRUST_GROWTH": TRUST_GROWTH,
        "_PACKED_PRICED_LOGICAL_ROW_BYTES": LOGICAL_ROW_BYTES,
        "_PACKED_PRICED_MIN_REQUEST_TOKENS": SHORT_REQUEST_ROWS,
    }
)
"""Constants shared with the laws. `_MEMORY_SAFETY_FACTOR` is also needed to read a static floor back out of an
estimate.
"""

_ABSENT: Final = "nothing"


class ArtInterfaceError(PricingError):
    """A rank whose methods are not those this adapter was written for. Nothing was bound.

    `found` and `expected` map each differing name to what was found there and what was expected; `version` is
    the installed release of `openpipe-art`, None where it is not installed as a distribution.
    """

    def __init__(self, found: Mapping[str, str], expected: Mapping[str, str], version: str | None) -> None:
        differences = "; ".join(f"{name}: found {found[name]}, expected {expected[name]}" for name in expected)
        super().__init__(
            f"this rank is not the TrainerRank of openpipe-art {SUPPORTED_VERSION} "
            f"(installed: {version or 'unknown'}): {differences}"
        )
        self.found = dict(found)
        self.expected = dict(expected)
        self.version = version


class ArtBindingError(PricingError):
    """A rank that is bound already, or that is not bound."""


def require_interface(rank: object) -> ModuleType:
    """ART's implementation module, if `rank` has the interface above. Raises `ArtInterfaceError` listing every
    difference.
    """
    implementation = implementation_of(rank)
    found = dict(_found(type(rank), implementation))
    expected = {name: text for name, text in _expected().items() if found[name] != text}
    if expected or implementation is None:
        raise ArtInterfaceError(found, expected, installed_version())
    return implementation


def implementation_of(rank: object) -> ModuleType | None:
    """The module that defines `TrainerRank`'s base class, None if `rank` has no such base."""
    for base in type(rank).__mro__:
        module = sys.modules.get(base.__module__)
        if base.__name__ == "TrainerRank" and module is not None and hasattr(module, "_MemorySignature"):
            return module
    return None


def installed_version() -> str | None:
    """Version of the installed `openpipe-art` distribution, None if there is none."""
    try:
        return importlib.metadata.version("openpipe-art")
    except importlib.metadata.PackageNotFoundError:
        return None


def _expected() -> dict[str, str]:
    return {**METHODS, **FIELDS, **{name: repr(value) for name, value in CONSTANTS.items()}}


def _found(rank_type: type, implementation: ModuleType | None) -> Iterator[tuple[str, str]]:
    for name in METHODS:
        yield name, _parameters(getattr(rank_type, name, None))
    for name in FIELDS:
        yield name, _field_names(getattr(implementation, name, None))
    for name in CONSTANTS:
        value = getattr(implementation, name, None)
        yield name, _ABSENT if value is None else repr(value)


def _parameters(method: Any) -> str:
    if not callable(method):
        return _ABSENT
    signature = inspect.signature(method)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(inspect.Signature(bare))[1:-1]


def _field_names(record: Any) -> str:
    return " ".join(field.name for field in dataclasses.fields(record)) if dataclasses.is_dataclass(record) else _ABSENT
