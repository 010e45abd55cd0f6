"""Large messages are counted before they are parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import JobGraph, Layout, Operator, SubmitRequest, Vertex
from lockgate_proto.v1 import control_pb2, graph_pb2, job_pb2
from lockgate_proto.wire import is_within

from tests.peak_memory import peak_bytes


def sized(number: int, content: bytes) -> bytes:
    size, head = len(content), bytearray([number << 3 | 2])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + content


EMPTY_VERTICES = b"\x12\x00"
BOMBS: dict[str, tuple[Any, bytes]] = {
    "empty messages": (job_pb2.SubmitRequest, sized(2, EMPTY_VERTICES * 10_000)),
    "empty messages, one level deeper": (job_pb2.SubmitRequest, sized(2, sized(2, b"\x2a\x00" * 10_000))),
    "one message, again and again": (job_pb2.SubmitRequest, b"\x12\x00" * 10_000),
    "empty texts": (graph_pb2.Edge, b"\x22\x00" * 10_000),
    "packed numbers": (control_pb2.Layout, sized(3, b"\x01" * 10_000)),
    "numbers": (graph_pb2.Vertex, b"\x18\x01" * 50_000),
    "unknown fields": (graph_pb2.Vertex, b"\xf8\x3f\x01" * 50_000),
    "groups": (graph_pb2.Vertex, b"\xfb\x3f\xfc\x3f" * 50_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_small_parts_are_counted_at_all_depths(name: str) -> None:
    kind, data = BOMBS[name]
    assert not is_within(kind.DESCRIPTOR, data, 4_000)
    assert is_within(kind.DESCRIPTOR, data, 50_000)


def test_large_content_counts_once() -> None:
    large = SubmitRequest("job", restore_from="x" * 10_000_000)
    assert is_within(job_pb2.SubmitRequest.DESCRIPTOR, encode(large), 10)


def test_a_layout_may_have_as_many_slots_as_a_large_cluster() -> None:
    layout = Layout(slots=tuple(range(50_000)))
    assert decode(Layout, encode(layout), 100_000) == layout


@given(st.binary(min_size=3, max_size=200), st.sampled_from([job_pb2.SubmitRequest, control_pb2.TaskManagerMessage]))
def test_any_bytes_get_an_answer(data: bytes, kind: Any) -> None:
    assert is_within(kind.DESCRIPTOR, data, 1) in (True, False)
    assert is_within(kind.DESCRIPTOR, data, len(data))


@given(st.integers(1, 60), st.integers(0, 5))
def test_messages_within_the_bound_are_never_refused(vertices: int, operators: int) -> None:
    """Elements of repeated fields, each with a text or two, within what `decode` allows for them."""
    vertex = Vertex("vertex", "name", 3, 128, (Operator("operator", "its name"),) * operators)
    count = vertices * (operators + 1)
    request = SubmitRequest("key", JobGraph("name", (vertex,) * vertices))
    assert decode(SubmitRequest, encode(request), count) == request
    with pytest.raises(MalformedMessage, match="more than"):
        decode(SubmitRequest, encode(request), count - 1)


def bomb() -> Callable[[], None]:
    data = sized(2, EMPTY_VERTICES * 8_000_000)

    def read() -> None:
        with pytest.raises(MalformedMessage, match="the message has more than 100,000 elements"):
            decode(SubmitRequest, data, 100_000)

    return read


def test_a_bomb_takes_no_memory() -> None:
    """16 MB of empty messages would become some 600 MB."""
    assert peak_bytes(bomb) < 40_000_000
