"""The one place where pb2 objects and frozen messages meet.

Frozen messages (`lockgate_proto.messages`) mirror the protobuf messages name by name, so one mapping serves all:
scalars and enums as they are (an optional one that is left out as None), repeated fields as tuples, message fields as
the message or None, a oneof as one field of the oneof's name that holds whichever member is set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lockgate_proto import messages
from lockgate_proto.release import own_version
from lockgate_proto.v1 import (
    checkpoint_pb2,
    control_pb2,
    exchange_pb2,
    failure_pb2,
    graph_pb2,
    job_pb2,
    load_pb2,
    query_pb2,
    story_pb2,
)
from lockgate_proto.wire import is_within

M = TypeVar("M")

_MODULES = (
    failure_pb2,
    story_pb2,
    load_pb2,
    query_pb2,
    graph_pb2,
    checkpoint_pb2,
    job_pb2,
    control_pb2,
    exchange_pb2,
)
_PARTS_AN_ELEMENT, _OWN_PARTS = 4, 100  # messages and texts of an element of a repeated field, and of the rest
_FIELDS: dict[type[Any], tuple[_Field, ...]] = {}
_EXACT = frozenset({messages.JobGraph, messages.SubmitRequest})  # what is not known in them must not be left out


class MalformedMessage(ValueError):
    """The bytes are not a message of the expected type, or one with far too many elements."""


class UnknownField(MalformedMessage):
    """A message that has to be understood whole has a field that only a newer version knows."""


class _Elements:
    """How many elements of repeated fields one message may still have, in all: each costs microseconds to decode."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, count: int) -> None:
        """Raises MalformedMessage before any of them is decoded."""
        self._left -= count
        if self._left < 0:
            raise _too_many(self._most)


def _too_many(most: int) -> MalformedMessage:
    return MalformedMessage(f"the message has more than {most:,} elements")


def encode(message: Any) -> bytes:
    """Serializes a frozen message. Deterministic: equal messages give equal bytes, so a checksum can name one."""
    return to_pb(message).SerializeToString(deterministic=True)


def decode(kind: type[M], data: bytes, most: int | None = None) -> M:
    """Parses the bytes of one message of type `kind`. Raises MalformedMessage, for a job graph UnknownField.

    most: elements of repeated fields, at all depths together; None: as many as there are. Depth is bounded by protobuf.
    """
    pb_class = _pb_class(kind.__name__)
    if most is not None and not is_within(pb_class.DESCRIPTOR, data, _OWN_PARTS + _PARTS_AN_ELEMENT * most):
        raise _too_many(most)
    try:
        pb = pb_class.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(f"{len(data)} bytes are not a {kind.__name__}: {error}") from error
    if kind in _EXACT and (problem := _unknown_field(pb)):
        raise UnknownField(problem)
    return from_pb(kind, pb, None if most is None else _Elements(most))


def unknown_field(kind: type[Any], data: bytes) -> str:
    """Why bytes that `decode` takes say more than this version knows, a sentence; "" when they do not."""
    return _unknown_field(_pb_class(kind.__name__).FromString(data))


def _unknown_field(pb: Message) -> str:
    unknown: Any = UnknownFieldSet(pb)
    if len(unknown):
        return (
            f"{pb.DESCRIPTOR.name} has a field {unknown[0].field_number}, which Lockgate {own_version()} does not "
            "know: a newer version has made it; use that version here, too, or make it with this one"
        )
    for item, value in pb.ListFields():
        if item.message_type is None or item.message_type.GetOptions().map_entry:
            continue
        for part in value if item.is_repeated else (value,):
            if problem := _unknown_field(part):
                return problem
    return ""


def element_count(message: Any) -> int:
    """Elements of repeated fields of a frozen message, at all depths together: what `most` of `decode` bounds."""
    count = 0
    for item in _fields(type(message)):
        value = getattr(message, item.name)
        if item.is_map or item.is_repeated:
            count += len(value)
        if item.is_repeated and item.is_message:
            count += sum(map(element_count, value))
        elif (item.is_message or item.members) and value is not None:
            count += element_count(value)
    return count


def serializer(message: Any) -> bytes:
    """For gRPC handlers and stubs: frozen message to bytes."""
    return encode(message)


def deserializer(kind: type[M]) -> Callable[[bytes], M]:
    """For gRPC handlers and stubs: bytes to a frozen message of type `kind`."""
    return lambda data: decode(kind, data)


def to_json(message: Any) -> dict[str, Any]:
    """A JSON-ready dict with every field present: enums by name, bytes in hexadecimal, a oneof as {member: value}."""
    plain: dict[str, Any] = {}
    for item in _fields(type(message)):
        value = getattr(message, item.name)
        if item.members and value is not None:
            plain[item.name] = {item.members[type(value).__name__]: _json_value(value)}
        else:
            plain[item.name] = _json_value(value)
    return plain


def to_pb(message: Any) -> Message:
    """The pb2 object of a frozen message."""
    name = type(message).__name__
    pb = _pb_class(name)()
    _ENCODERS[name](message, pb)
    return pb


def from_pb(kind: type[M], pb: Message, room: _Elements | None = None) -> M:
    """The frozen message of type `kind` that says what `pb` says. Unknown enum numbers become the first value."""
    found: M = _DECODERS[kind.__name__](pb, room)
    return found


def _as_it_is(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True)
class _Field:
    name: str
    is_message: bool = False
    is_repeated: bool = False
    is_map: bool = False
    is_optional: bool = False  # a scalar that may be left out
    is_float: bool = False  # a scalar whose default is not the only false value: minus zero is another number
    members: Mapping[str, str] = dataclasses.field(default_factory=dict)  # oneof: message name to pb field name
    kind: str = ""  # of a message
    convert: Callable[[Any], Any] = _as_it_is


def _json_value(value: Any) -> Any:
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, tuple):
        return [_json_value(element) for element in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    return to_json(value) if dataclasses.is_dataclass(value) else value


_Decoder = Callable[[Message, "_Elements | None"], Any]


class _Decoders(dict[str, _Decoder]):
    """By message name. Made at the first use, because messages may contain each other."""

    def __missing__(self, name: str) -> _Decoder:
        found = self[name] = _decoder(getattr(messages, name))
        return found


_DECODERS = _Decoders()


def _decoder(kind: type[Any]) -> _Decoder:
    """Decodes messages of one type, by one function that is compiled once: a leader decodes thousands a second.

    Half the time of calls for each field. Names come from the descriptors, never from a message. The object is filled
    as a draft that is not frozen yet: a frozen one takes three times as long, with a call for each field.
    """
    fields = _fields(kind)
    draft = type(f"{kind.__name__}Draft", (), {"__slots__": tuple(item.name for item in fields)})
    known: dict[str, Any] = {"kind": kind, "draft": draft, "decoders": _DECODERS, "taken": _taken, "oneof": _decoded}
    known |= {f"convert_{item.name}": item.convert for item in fields}
    filled = [f"    found.{item.name} = {_expression(item)}" for item in fields]
    lines = ["def read(pb, room):", "    found = draft()", *filled, "    found.__class__ = kind", "    return found"]
    exec("\n".join(lines), known)
    found: _Decoder = known["read"]
    return found


def _expression(item: _Field) -> str:
    """The value of one field of `pb`."""
    value, present = f"pb.{item.name}", f"pb.HasField('{item.name}')"
    if item.members:
        return f"oneof(pb, pb.WhichOneof('{item.name}'), room)"
    if item.is_map:
        return f"dict(taken({value}, room))"
    elements = f"taken({value}, room)"
    if item.is_repeated and item.is_message:
        return f"tuple([decoders['{item.kind}'](each, room) for each in {elements}]) if {value} else ()"
    if item.is_repeated:
        return f"tuple(map(convert_{item.name}, {elements})) if {value} else ()"
    if item.is_message:
        return f"decoders['{item.kind}']({value}, room) if {present} else None"
    converted = value if item.convert is _as_it_is else f"convert_{item.name}({value})"
    return f"{converted} if {present} else None" if item.is_optional else converted


def _taken(found: Any, room: _Elements | None) -> Any:
    """The elements of a field, once there is room for them."""
    if room is not None:
        room.take(len(found))
    return found


def _decoded(pb: Message, member: str | None, room: _Elements | None) -> Any:
    """The member of a oneof that is set; None for none."""
    if member is None:
        return None
    part = getattr(pb, member)
    return _DECODERS[type(part).__name__](part, room)


_Encoder = Callable[[Any, Message], None]


class _Encoders(dict[str, _Encoder]):
    """By message name. Made at the first use, because messages may contain each other."""

    def __missing__(self, name: str) -> _Encoder:
        found = self[name] = _encoder(getattr(messages, name))
        return found


_ENCODERS = _Encoders()


def _encoder(kind: type[Any]) -> _Encoder:
    """Fills the pb2 object of a message, by one function that is compiled once, as decoding is.

    What has its default value is not touched: most fields of most messages. A part is filled in its place, not copied.
    """
    lines = ["def fill(message, pb):", "    pass", *(f"    {line}" for item in _fields(kind) for line in _filled(item))]
    known: dict[str, Any] = {"encoders": _ENCODERS, "part_of": _part_of}
    exec("\n".join(lines), known)
    found: _Encoder = known["fill"]
    return found


def _filled(item: _Field) -> tuple[str, ...]:
    """The statements for one field."""
    value, target = f"value = message.{item.name}", f"pb.{item.name}"
    if item.members:
        filled = f"encoders[type(value).__name__](value, part_of(pb, {dict(item.members)!r}[type(value).__name__]))"
        return value, f"if value is not None: {filled}"
    if item.is_map:
        return value, f"if value: {target}.update(value)"
    if item.is_repeated and item.is_message:
        filled = f"for each in value: fill_{item.name}(each, {target}.add())"
        return value, "if value:", f"    fill_{item.name} = encoders['{item.kind}']", f"    {filled}"
    if item.is_repeated:
        return value, f"if value: {target}.extend(value)"
    if item.is_message:
        return value, f"if value is not None: encoders['{item.kind}'](value, part_of(pb, '{item.name}'))"
    if item.is_optional:
        return value, f"if value is not None: {target} = value"
    return (f"{target} = message.{item.name}",) if item.is_float else (value, f"if value: {target} = value")


def _part_of(pb: Message, name: str) -> Message:
    """A message field, present from now on, even if nothing in it is set."""
    part: Message = getattr(pb, name)
    part.SetInParent()
    return part


@cache
def _pb_class(name: str) -> type[Message]:
    for module in _MODULES:
        if hasattr(module, name):
            found: type[Message] = getattr(module, name)
            return found
    raise TypeError(f"{name} is not a message of lockgate.v1")


def _fields(kind: type[Any]) -> tuple[_Field, ...]:
    known = _FIELDS.get(kind)
    if known is None:
        known = _FIELDS[kind] = _fields_of(kind)
    return known


def _fields_of(kind: type[Any]) -> tuple[_Field, ...]:
    descriptor = _pb_class(kind.__name__).DESCRIPTOR
    result = []
    for item in dataclasses.fields(kind):
        if item.name in descriptor.oneofs_by_name:
            oneof = descriptor.oneofs_by_name[item.name]
            result.append(_Field(item.name, members={_message_name(field): field.name for field in oneof.fields}))
        else:
            result.append(_field(descriptor.fields_by_name[item.name]))
    return tuple(result)


def _message_name(item: Any) -> str:
    name: str = item.message_type.name
    return name


def _field(item: Any) -> _Field:
    is_message = item.type == FieldDescriptor.TYPE_MESSAGE
    is_map = is_message and item.message_type.GetOptions().map_entry
    convert = _enum_converter(item.enum_type.name) if item.type == FieldDescriptor.TYPE_ENUM else _as_it_is
    is_optional = item.has_presence and not is_message
    is_repeated = item.is_repeated and not is_map
    is_float = item.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
    kind = item.message_type.name if is_message else ""
    return _Field(
        item.name,
        is_message and not is_map,
        is_repeated,
        is_map,
        is_optional,
        is_float,
        kind=kind,
        convert=convert,
    )


def _enum_converter(name: str) -> Callable[[int], IntEnum]:
    enum: type[IntEnum] = getattr(messages, name)
    return _EnumNumbers(enum, {int(member): member for member in enum}).__getitem__


class _EnumNumbers(dict[int, IntEnum]):
    """Members by number; the first one for a number that is not known here."""

    def __init__(self, enum: type[IntEnum], members: Mapping[int, IntEnum]) -> None:
        super().__init__(members)
        self._first = enum(0)

    def __missing__(self, number: int) -> IntEnum:
        return self._first
