"""Mutations of files: what disks, editors, other programs and attackers make of a text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

AWKWARD: Final = (
    b"nan",
    b"-Infinity",
    b"1e999",
    b"-1",
    b"0",
    b"-0",
    b"1.0",
    b"9223372036854775807",
    b"9223372036854775808",
    b"9" * 5_000,
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"[" * 600,
    b'{"a":' * 600,
    b'"\\ud800"',
    b"\xff",
    b"\x00",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b"\n",
    b"",
    b'"',
)


def _flip(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text))
    return text[:at] + bytes([text[at] ^ 1 << draw.randrange(8)]) + text[at + 1 :]


def _cut(draw: random.Random, text: bytes) -> bytes:
    return text[: draw.randrange(len(text))]


def _without_a_piece(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text))
    return text[:at] + text[at + draw.randrange(1, 40) :]


def _with_a_piece_twice(draw: random.Random, text: bytes) -> bytes:
    at, length = draw.randrange(len(text)), draw.randrange(1, 400)
    return text[: at + length] + text[at:]


def _spliced(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text))
    return text[:at] + draw.choice(AWKWARD) + text[at + draw.randrange(3) :]


def _number_changed(draw: random.Random, text: bytes) -> bytes:
    """One number, or another value, in the place of a number."""
    starts = [at for at in range(1, len(text)) if text[at : at + 1].isdigit() and not text[at - 1 : at].isdigit()]
    if not starts:
        return _spliced(draw, text)
    start = draw.choice(starts)
    end = start
    while end < len(text) and text[end : end + 1].isdigit():
        end += 1
    return text[:start] + draw.choice(AWKWARD) + text[end:]


def _lines_shuffled(draw: random.Random, text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    draw.shuffle(lines)
    return b"".join(lines[: draw.randrange(len(lines) + 1)])


MUTATIONS: Final[Sequence[Callable[[random.Random, bytes], bytes]]] = (
    _flip,
    _flip,
    _cut,
    _without_a_piece,
    _with_a_piece_twice,
    _spliced,
    _number_changed,
    _number_changed,
    _lines_shuffled,
)


def mutated(draw: random.Random, text: bytes) -> bytes:
    """`text` after one to three mutations."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        if text:
            text = draw.choice(MUTATIONS)(draw, text)
    return text
