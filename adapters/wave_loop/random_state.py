"""The state of torch's random generators before a wave, so that a second try draws what the first one drew."""

from __future__ import annotations

from typing import Any

import torch


class RandomState:
    """torch's default generators: the CPU's and that of `device`. The caller's own generators, Python's and numpy's are
    the caller's."""

    __slots__ = ("_cpu", "_device", "_device_state")

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.get_rng_state()
        self._device_state = None if device.type == "cpu" else _module(device).get_rng_state(device)

    def restore(self) -> None:
        """Set the generators back."""
        torch.set_rng_state(self._cpu)
        if self._device_state is not None:
            _module(self._device).set_rng_state(self._device_state, self._device)


def _module(device: torch.device) -> Any:
    return torch.get_device_module(device)
