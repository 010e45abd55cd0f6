from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class OperatorKeys(_message.Message):
    __slots__ = ("operator_id", "keys")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    operator_id: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, operator_id: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class KeyedValue(_message.Message):
    __slots__ = ("operator_id", "key", "found", "value")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    operator_id: str
    key: str
    found: bool
    value: str
    def __init__(self, operator_id: _Optional[str] = ..., key: _Optional[str] = ..., found: _Optional[bool] = ..., value: _Optional[str] = ...) -> None: ...
