"""Errors of the meter and of the budget. They say that the program, not its input, is wrong, so they are
RuntimeErrors."""

from __future__ import annotations


class MeterError(RuntimeError):
    """Base of what the meter raises."""


class MeterMisuseError(MeterError):
    """An interval token used out of order: forward reported twice, closed twice, read before it was
    opened."""


class OwnershipError(MeterError):
    """A peak counter used by someone who does not own it, or claimed while another meter still does."""


class BudgetSampleError(RuntimeError):
    """The device's free memory could not be read. Never means "unlimited": the wave must not run on any
    rank."""
