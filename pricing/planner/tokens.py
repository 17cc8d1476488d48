"""Token rows: how a request's token ids are held and compared.

Two implementations with the same answers: numpy (the `fast` extra) and the standard library alone. A row is held as an
array, not copied where it already is one; runs are compared in blocks, so that finding where two rows part costs time
in proportion to what they share.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pricing.kernel.errors import PricingError

FIRST_BLOCK_TOKENS: Final = 128
EXPECTED_MARGIN_TOKENS: Final = 8
BLOCK_GROWTH: Final = 4
"""Blocks start small, because what lies behind a difference is read for nothing, and grow, because a long shared prompt
should not pay a call for every few tokens."""


class TokenError(PricingError):
    """Token ids that are not a row of integers of at most 64 bits."""


class Tokens(Protocol):
    """Operations on rows of one representation. Rows are opaque to callers except for `len(row)` and `int(row[i])`."""

    @property
    def name(self) -> str: ...

    def row(self, tokens: Any) -> Any:
        """`tokens` as a flat row: a list, an array, anything with `__array__` (CPU tensors). Raises `TokenError`."""
        ...

    def first_difference(self, left: Any, right: Any, start: int, expected: int = 0) -> int:
        """First index at or after `start` where the rows differ; the shorter length if there is none.

        expected: where they probably do (any value is correct): siblings part where the pair before them did.
        """
        ...

    def filled(self, count: int, value: int) -> Any:
        """A writable row of `count` times `value`."""
        ...

    def count_up(self, start: int, stop: int) -> Any:
        """The row start, start + 1, ..., stop - 1."""
        ...

    def concatenate(self, rows: Sequence[Any]) -> Any:
        """One row of all of them, in order."""
        ...

    def view(self, row: Any, count: int) -> Any:
        """The first `count` of a row, without a copy."""
        ...


def _next_block(block: int, expected: int) -> int:
    """Small again behind the expected difference, else larger."""
    return FIRST_BLOCK_TOKENS if block == expected else block * BLOCK_GROWTH


class ArrayTokens:
    """The standard library's arrays of 64-bit integers."""

    name: Final = "array"

    def row(self, tokens: Any) -> array[int]:
        if isinstance(tokens, array) and tokens.typecode == "q":
            return tokens
        listed = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        try:
            return array("q", _flat(listed))
        except (TypeError, OverflowError, ValueError) as error:
            raise TokenError(f"token ids must be integers of at most 64 bits: {error}") from None

    def first_difference(self, left: array[int], right: array[int], start: int, expected: int = 0) -> int:
        stop = min(len(left), len(right))
        if start < stop and left[start] != right[start]:
            return start
        block = max(FIRST_BLOCK_TOKENS, expected - start)
        while start < stop:
            end = min(start + block, stop)
            if left[start:end] != right[start:end]:
                return self._within(left, right, start, end)
            start, block = end, _next_block(block, expected)
        return stop

    def _within(self, left: array[int], right: array[int], start: int, end: int) -> int:
        """Bisects: the rows differ somewhere in [start, end)."""
        while end - start > 1:
            middle = (start + end) // 2
            if left[start:middle] == right[start:middle]:
                start = middle
            else:
                end = middle
        return start

    def filled(self, count: int, value: int) -> array[int]:
        return array("q", [value]) * count

    def count_up(self, start: int, stop: int) -> array[int]:
        return array("q", range(start, stop))

    def concatenate(self, rows: Sequence[array[int]]) -> array[int]:
        joined = array("q")
        for row in rows:
            joined.extend(row)
        return joined

    def view(self, row: array[int], count: int) -> memoryview:
        return memoryview(row)[:count]


def _flat(values: Any) -> list[int]:
    """Nested lists of equal lengths, flattened one level at a time."""
    listed = list(values)
    while listed and all(isinstance(value, (list, tuple)) for value in listed):
        if len({len(value) for value in listed}) > 1:
            raise ValueError("nested rows of unequal lengths")
        listed = [inner for value in listed for inner in value]
    _refuse_flags(listed)
    return listed


def _refuse_flags(values: Any) -> None:
    """Python counts True as 1; a row that holds one is a mask by mistake."""
    if bool in set(map(type, values)):
        raise TypeError("got true or false among the token ids")


class NumpyTokens:
    """numpy arrays, compared in place."""

    name: Final = "numpy"

    def __init__(self) -> None:
        import numpy

        self._numpy = numpy

    def row(self, tokens: Any) -> Any:
        numpy = self._numpy
        if type(tokens) is numpy.ndarray and tokens.ndim == 1 and tokens.dtype.char in "lqi":
            return tokens  # signed, of 64 or 32 bits: as it is
        try:
            if isinstance(tokens, (list, tuple)):
                _refuse_flags(tokens)
            values = numpy.asarray(tokens)
        except (TypeError, ValueError, OverflowError) as error:
            raise TokenError(f"token ids must be a row of integers: {error}") from None
        if values.ndim == 0:
            raise TokenError(f"token ids must be a row of integers, got {tokens!r}")
        values = values.reshape(-1)
        if values.size == 0:
            return numpy.empty(0, dtype=numpy.int64)
        if values.dtype.kind not in "iu" or (values.dtype == numpy.uint64 and int(values.max()) >= 1 << 63):
            raise TokenError(f"token ids must be integers of at most 64 bits, got an array of {values.dtype}")
        return values if values.dtype in (numpy.int64, numpy.int32) else values.astype(numpy.int64)

    def first_difference(self, left: Any, right: Any, start: int, expected: int = 0) -> int:
        stop = min(len(left), len(right))
        if start < stop and left[start] != right[start]:
            return start
        # Just beyond where they are expected to part: one comparison where they do.
        block = max(FIRST_BLOCK_TOKENS, expected - start + EXPECTED_MARGIN_TOKENS)
        while start < stop:
            end = min(start + block, stop)
            differs = left[start:end] != right[start:end]
            first = int(differs.argmax())
            if differs[first]:
                return start + first
            start, block = end, block * BLOCK_GROWTH
        return stop

    def filled(self, count: int, value: int) -> Any:
        return self._numpy.full(count, value, dtype=self._numpy.int64)

    def count_up(self, start: int, stop: int) -> Any:
        return self._numpy.arange(start, stop, dtype=self._numpy.int64)

    def concatenate(self, rows: Sequence[Any]) -> Any:
        if not rows:
            return self._numpy.empty(0, dtype=self._numpy.int64)
        return self._numpy.concatenate(rows)

    def view(self, row: Any, count: int) -> Any:
        return row[:count]


def default_tokens() -> Tokens:
    """numpy where it is installed, else the standard library."""
    try:
        return NumpyTokens()
    except ImportError:
        return ArrayTokens()
