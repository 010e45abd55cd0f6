"""Damages valid samples. The same random numbers give the same bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

LARGEST = 256 * 1024
"""Bytes of a mutant: more than any reader takes at a time, and little enough to make thousands of."""

_WORDS = (
    b"\x00",
    b"\x7f",
    b"\xff" * 4,
    b"\xff" * 9 + b"\x01",  # the largest varint
    b"\xff\xff\xff\x7f",
    b"\x80" * 12,
    b"null",
    b"true",
    b"-1",
    b"0.5",
    b"1e999",
    b"NaN",
    b"9223372036854775808",
    b"9" * 500,
    b"[]",
    b"{}",
    b'""',
    b'"\\ud800"',
    b'"\\u0000"',
    b"\xc3\x28",
    b"${PATH}",
    b"../..",
    b"%s%n",
    b"\n",
    b"lockgate",
)
_DEPTHS = (10, 90, 190, 450, 1_000, 30_000)
_NESTS = ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"type":', b"}]"))
_VALUE = re.compile(rb'-?\d+|"[^"]*"|true|false|null')


def mutated(rng: random.Random, samples: Sequence[bytes]) -> bytes:
    """One of the samples with some damage; seldom nothing, or noise."""
    kind = rng.random()
    if kind < 0.01:
        return b""
    if kind < 0.03:
        return rng.randbytes(rng.randrange(1, 200))
    data = rng.choice(samples)
    for _ in range(min(8, 1 + int(rng.expovariate(0.8)))):
        data = rng.choice(_CHANGES)(rng, data, samples)[:LARGEST]
    return data


def _place(rng: random.Random, data: bytes) -> tuple[int, int]:
    """The first byte of a slice and the one behind its last; small slices are the most frequent ones."""
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + int(rng.expovariate(1 / 12)))


def _flip(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _overwrite(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    begin, end = _place(rng, data)
    return data[:begin] + rng.randbytes(end - begin) + data[end:]


def _number(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    """Another number where there may be a length, an offset or a count."""
    size = rng.choice((1, 2, 4, 8))
    begin = rng.randrange(max(1, len(data) - size + 1))
    number = rng.choice((0, 1, -1, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1, len(data), rng.randrange(1 << 16)))
    return data[:begin] + (number % (1 << (8 * size))).to_bytes(size, "little") + data[begin + size :]


def _delete(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    begin, end = _place(rng, data)
    return data[:begin] + data[end:]


def _repeat(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    begin, end = _place(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 2, 50, 2_000)) + data[end:]


def _truncate(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _insert(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(_WORDS) + data[at:]


def _splice(rng: random.Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    other = rng.choice(samples)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _replace_value(rng: random.Random, data: bytes, _samples: Sequence[bytes]) -> bytes:
    """Of a text such as JSON: another value, or one that is nested deeply."""
    found = list(_VALUE.finditer(data[:20_000]))
    if not found:
        return data
    chosen = rng.choice(found)
    value = rng.choice(_WORDS)
    if rng.random() < 0.3:
        (opened, closed), depth = rng.choice(_NESTS), rng.choice(_DEPTHS)
        value = opened * depth + value + closed * depth
    return data[: chosen.start()] + value + data[chosen.end() :]


_CHANGES: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    _flip,
    _flip,
    _overwrite,
    _number,
    _delete,
    _repeat,
    _truncate,
    _insert,
    _splice,
    _replace_value,
)
