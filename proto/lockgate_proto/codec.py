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
from operator import attrgetter
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
    story_pb2,
)
from lockgate_proto.wire import is_within

M = TypeVar("M")

_MODULES = (failure_pb2, story_pb2, load_pb2, graph_pb2, checkpoint_pb2, job_pb2, control_pb2, exchange_pb2)
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
    kind = type(message)
    pb = _pb_class(kind.__name__)()
    for item in _fields(kind):
        value = getattr(message, item.name)
        if item.members:
            if value is not None:
                getattr(pb, item.members[type(value).__name__]).CopyFrom(to_pb(value))
        elif item.is_map:
            getattr(pb, item.name).update(value)
        elif item.is_repeated:
            getattr(pb, item.name).extend([to_pb(element) for element in value] if item.is_message else value)
        elif item.is_message:
            if value is not None:
                getattr(pb, item.name).CopyFrom(to_pb(value))
        elif not item.is_optional or value is not None:
            setattr(pb, item.name, value)
    return pb


def from_pb(kind: type[M], pb: Message, room: _Elements | None = None) -> M:
    """The frozen message of type `kind` that says what `pb` says. Unknown enum numbers become the first value."""
    found: M = _decoder_named(kind.__name__)(pb, room)
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
    members: Mapping[str, str] = dataclasses.field(default_factory=dict)  # oneof: message name to pb field name
    convert: Callable[[Any], Any] = _as_it_is

    @property
    def is_plain(self) -> bool:
        """A scalar that is taken over unchanged."""
        special = self.is_message or self.is_repeated or self.is_map or self.is_optional or self.members
        return not special and self.convert is _as_it_is


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


_Getter = Callable[[Message, "_Elements | None"], Any]


@cache
def _decoder(kind: type[Any]) -> _Getter:
    """Decodes messages of one type. Made once for each type: a leader decodes thousands a second."""
    fields = _fields(kind)
    if all(item.is_plain for item in fields) and len(fields) > 1:
        values = attrgetter(*(item.name for item in fields))
        return lambda pb, _: kind(*values(pb))
    getters = tuple(_getter(item) for item in fields)
    return lambda pb, room: kind(*[get(pb, room) for get in getters])


def _getter(item: _Field) -> _Getter:
    """Takes the value of one field out of a message of pb2."""
    name, convert = item.name, item.convert
    if item.members:
        return lambda pb, room: None if (member := pb.WhichOneof(name)) is None else _decoded(getattr(pb, member), room)
    if item.is_map:
        return lambda pb, room: dict(_taken(getattr(pb, name), room))
    if item.is_repeated and item.is_message:
        return lambda pb, room: tuple([_decoded(entry, room) for entry in _taken(getattr(pb, name), room)])
    if item.is_repeated:
        return lambda pb, room: tuple(map(convert, _taken(getattr(pb, name), room)))
    if item.is_message:
        return lambda pb, room: _decoded(getattr(pb, name), room) if pb.HasField(name) else None
    if item.is_optional:
        return lambda pb, _: convert(getattr(pb, name)) if pb.HasField(name) else None
    return lambda pb, _: convert(getattr(pb, name))


def _taken(found: Any, room: _Elements | None) -> Any:
    """The elements of a field, once there is room for them."""
    if room is not None:
        room.take(len(found))
    return found


def _decoded(pb: Message, room: _Elements | None) -> Any:
    return _decoder_named(type(pb).__name__)(pb, room)


@cache
def _decoder_named(name: str) -> _Getter:
    return _decoder(getattr(messages, name))


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
    return _Field(item.name, is_message and not is_map, is_repeated, is_map, is_optional, convert=convert)


def _enum_converter(name: str) -> Callable[[int], IntEnum]:
    enum: type[IntEnum] = getattr(messages, name)

    def convert(number: int) -> IntEnum:
        try:
            return enum(number)
        except ValueError:
            return enum(0)

    return convert
