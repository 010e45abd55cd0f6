"""The codec maps every message there and back, and malformed bytes are one readable error."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto import codec, messages

MESSAGES = [kind for kind in vars(messages).values() if dataclasses.is_dataclass(kind) and isinstance(kind, type)]
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    int: st.integers(-(2**31), 2**31 - 1),
    float: st.floats(allow_nan=False),
}


def a_message(kind: type[Any], depth: int = 3) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: a_value(hints[field.name], depth) for field in dataclasses.fields(kind)})


def a_value(hint: Any, depth: int) -> st.SearchStrategy[Any]:
    if hint in SCALARS:
        return SCALARS[hint]
    if typing.get_origin(hint) is tuple:
        return st.just(()) if depth == 0 else st.lists(a_value(hint.__args__[0], depth - 1), max_size=2).map(tuple)
    if isinstance(hint, types.UnionType):
        members = [item for item in hint.__args__ if item is not type(None)]
        if members[0] in SCALARS:
            return st.none() | SCALARS[members[0]]
        filled = [] if depth == 0 else [a_message(member, depth - 1) for member in members]
        return st.one_of(st.none(), *filled)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return st.sampled_from(list(hint))
    if dataclasses.is_dataclass(hint):
        return a_message(typing.cast("type[Any]", hint), depth - 1)
    return st.dictionaries(SCALARS[str], SCALARS[str], max_size=2)  # map<string, string>


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_survives_the_round_trip(kind: type[Any]) -> None:
    @settings(max_examples=25, deadline=None)
    @given(a_message(kind))
    def round_trip(message: Any) -> None:
        assert codec.decode(kind, codec.encode(message)) == message

    round_trip()


def test_minus_zero_is_another_number_than_the_default() -> None:
    """The encoder leaves out what is false, as minus zero is."""
    kind = next(kind for kind in MESSAGES if float in typing.get_type_hints(kind).values())
    name = next(name for name, hint in typing.get_type_hints(kind).items() if hint is float)
    found = codec.decode(kind, codec.encode(kind(**{name: -0.0})))
    assert str(getattr(found, name)) == "-0.0"


def test_a_part_without_content_is_present() -> None:
    empty = messages.CoordinatorMessage(body=messages.DrainSources(attempt=messages.AttemptId()))
    assert codec.decode(messages.CoordinatorMessage, codec.encode(empty)) == empty
    assert codec.encode(messages.BatchedReport(messages.FirstRecord())) != codec.encode(messages.BatchedReport())


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_elements_are_counted_alike_before_sending_and_while_decoding(kind: type[Any]) -> None:
    @settings(max_examples=10, deadline=None)
    @given(a_message(kind))
    def counted(message: Any) -> None:
        count, data = codec.element_count(message), codec.encode(message)
        assert codec.decode(kind, data, count) == message
        if count:
            with pytest.raises(codec.MalformedMessage):
                codec.decode(kind, data, count - 1)

    counted()


def test_an_optional_scalar_that_is_left_out_is_not_its_zero() -> None:
    left_out, zero = messages.ExponentialRestart(), messages.ExponentialRestart(jitter=0.0)
    assert codec.encode(left_out) == b""
    assert codec.decode(messages.ExponentialRestart, codec.encode(zero)).jitter == 0.0
    assert codec.to_json(left_out)["jitter"] is None


def test_equal_messages_give_equal_bytes_in_any_order_of_a_map() -> None:
    file_source = messages.FileSource(path="p", options={"a": "1", "b": "2"})
    other = messages.FileSource(path="p", options={"b": "2", "a": "1"})
    assert codec.encode(file_source) == codec.encode(other)


def test_bytes_that_are_not_a_message_are_refused_with_the_expected_type() -> None:
    with pytest.raises(codec.MalformedMessage, match="3 bytes are not a JobGraph"):
        codec.decode(messages.JobGraph, b"\xff\xff\xff")


def test_an_enum_number_from_a_newer_release_reads_as_unspecified() -> None:
    data = codec.to_pb(messages.Edge(source="a", target="b"))
    data.partitioning = 99  # type: ignore[attr-defined]
    assert codec.from_pb(messages.Edge, data).partitioning is messages.Partitioning.PARTITIONING_UNSPECIFIED


def test_json_has_numbers_as_numbers_enums_by_name_and_the_oneof_by_member() -> None:
    operator = messages.Operator("src", "src", messages.FileSource("p", messages.FileFormat.TEXT))
    plain = codec.to_json(messages.Vertex("v", "v", 2, 128, (operator,)))
    assert plain["parallelism"] == 2
    assert plain["operators"][0]["kind"]["file_source"]["format"] == "TEXT"


def test_elements_are_counted_at_all_depths_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    vertex = messages.Vertex("v", operators=(messages.Operator("o"),) * 3)
    data = codec.encode(messages.JobGraph(vertices=(vertex,) * 5))
    assert len(codec.decode(messages.JobGraph, data, 20).vertices) == 5
    made: list[object] = []
    monkeypatch.setattr(messages, "Vertex", lambda **fields: made.append(fields))
    with pytest.raises(codec.MalformedMessage, match="more than 4 elements"):
        codec.decode(messages.JobGraph, data, 4)
    assert made == []
    monkeypatch.undo()
    with pytest.raises(codec.MalformedMessage, match="more than 19 elements"):
        codec.decode(messages.JobGraph, data, 19)
    assert len(codec.decode(messages.JobGraph, data).vertices) == 5
