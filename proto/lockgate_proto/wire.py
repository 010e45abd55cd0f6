"""Counts what the bytes of a message contain, before anything is made of them.

Two bytes name an empty message, which takes a hundred once protobuf has parsed it: 32 MiB would become more than a GB.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_TAGS_A_FIELD = 4  # numbers between the fields that take memory

_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def is_within(descriptor: Any, data: bytes, most: int) -> bool:
    """False when the bytes have more than `most` messages, texts and packed numbers, at all depths together.

    Short data is not read at all. Malformed bytes may give either answer: the parser refuses them.
    """
    if len(data) <= most:  # each of them takes a byte or more
        return True
    left, tags = most, _TAGS_A_FIELD * most
    parts: list[tuple[Any, int, int]] = [(descriptor, 0, len(data))]
    while parts:
        of, at, end = parts.pop()
        while at < end:
            tag, at = _varint(data, at)
            tags -= 1
            match tag & 7:  # the wire types; those of groups have no content of their own
                case 0:
                    _, at = _varint(data, at)
                case 1:
                    at += 8
                case 5:
                    at += 4
                case 2:
                    size, at = _varint(data, at)
                    within = _within(of).get(tag >> 3)
                    left -= max(1, size) if within is _PACKED else 1
                    if isinstance(within, Descriptor) and size:
                        parts.append((within, at, min(at + size, end)))
                    at += size
            if left < 0 or tags < 0:
                return False
    return True


_PACKED = object()


@cache
def _within(descriptor: Any) -> dict[int, Any]:
    """By number of the sized fields that are no text: the type of their message, or _PACKED."""
    return {field.number: field.message_type or _PACKED for field in descriptor.fields if field.type not in _TEXTS}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place after it; 0 and the end where the bytes end within it."""
    number = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            return number, at
    return 0, at
