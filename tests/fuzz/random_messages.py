"""Valid messages of any protobuf type, made from its descriptor."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_DEEPEST = 5
_TEXTS = ("", "a", "source", "count", "ä\u2028", "x" * 300, "%s", "${HOME}", "a b", "-", "\x00")
_NUMBERS = (0, 1, 1, 2, 3, 7, 100, 65_536, (1 << 31) - 1)
_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


class RandomMessages:
    """known: values by the name of a field or of a message type, which are taken half of the time or more."""

    def __init__(self, rng: random.Random, known: Mapping[str, tuple[Any, ...]]) -> None:
        self._rng, self._known = rng, known

    def make(self, kind: Descriptor, depth: int = 0) -> Message:
        """A message of the type."""
        if kind.name in self._known and self._rng.random() < 0.7:
            found: Message = self._rng.choice(self._known[kind.name])
            return found
        message = GetMessageClass(kind)()
        skipped = {field.name for oneof in kind.oneofs for field in oneof.fields}
        skipped -= {self._rng.choice(oneof.fields).name for oneof in kind.oneofs}
        for field in kind.fields:
            if field.name not in skipped and self._rng.random() < 0.8:
                self._fill(message, field, depth)
        return message

    def _fill(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        is_message = field.type == FieldDescriptor.TYPE_MESSAGE
        if is_message and depth >= _DEEPEST:
            return
        if is_message and field.message_type.GetOptions().map_entry:
            return
        count = self._rng.choice((0, 1, 1, 2, 3)) if field.is_repeated else 1
        values = [self.make(field.message_type, depth + 1) if is_message else self._scalar(field) for _ in range(count)]
        if field.is_repeated:
            getattr(message, field.name).extend(values)
        elif is_message:
            getattr(message, field.name).CopyFrom(values[0])
        else:
            setattr(message, field.name, values[0])

    def _scalar(self, field: FieldDescriptor) -> Any:
        rng = self._rng
        if field.name in self._known and rng.random() < 0.8:
            return rng.choice(self._known[field.name])
        if field.cpp_type in _BITS:
            return rng.choice((*_NUMBERS, *_BITS[field.cpp_type]))
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice([value.number for value in field.enum_type.values] + [99])
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return rng.choice((0.0, 1.0, -1.0, 1e300, float("inf"), float("nan")))
        text = rng.choice(_TEXTS)
        return text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
