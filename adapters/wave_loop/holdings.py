"""Whose memory it is: what holds the part of the device that a wave cannot have."""

from __future__ import annotations

from dataclasses import dataclass

from pricing.text import gib_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What of the memory in use is known, in bytes. `str()` names what is there, empty where nothing is.

    outputs_bytes: outputs of earlier waves that somebody still holds. gradient_bytes: gradients of the parameters, and
    `unmade_gradient_bytes`: those that backward has yet to make, kept free. grown_bytes: what is in use beside both,
    above what was when the run began (an optimizer's state counts here).
    """

    outputs_bytes: int
    gradient_bytes: int
    unmade_gradient_bytes: int
    grown_bytes: int

    def __str__(self) -> str:
        parts = (
            ("outputs of earlier waves that are still alive", self.outputs_bytes),
            ("gradients", self.gradient_bytes),
            ("gradients that backward has yet to make", self.unmade_gradient_bytes),
            ("growth outside waves since the run began", self.grown_bytes),
        )
        named = [f"{gib_text(size)} {name}" for name, size in parts if size > 0]
        return ": " + ", ".join(named) if named else ""
