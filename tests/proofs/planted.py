"""Two CrossHair harnesses for the tests of the runner: one true, one false."""

from __future__ import annotations


def doubling_is_never_seven(number: int) -> bool:
    """
    post: _
    """
    return 2 * number != 7


def halves_add_up(number: int) -> bool:
    """
    post: _
    """
    return number // 2 + number // 2 == number
