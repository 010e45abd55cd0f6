"""Tables as messages, the registry of gates, the fence."""

from __future__ import annotations

from concurrent import futures
from dataclasses import replace

import pyarrow as pa
import pytest
from lockgate_proto.messages import AttemptId, Barrier, RecordBatch, SubtaskId
from lockgate_taskmanager.exchange import elements
from lockgate_taskmanager.exchange.elements import (
    CONTROL_BYTES,
    MESSAGE_BYTES,
    from_message,
    sendable,
    size_of,
    split,
    to_message,
)
from lockgate_taskmanager.exchange.errors import ChannelRefused, RecordTooLarge
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.registry import GateRegistry


def _subtask(attempt: int = 1) -> SubtaskId:
    return SubtaskId(AttemptId("job", "run", attempt), "count", 0)


def test_a_table_round_trips_unchanged() -> None:
    table = pa.table({"word": ["a", None, "c"], "n": [1, 2, 3]})
    message = to_message(table)
    assert message.rows == 3
    assert from_message(message).equals(table)


def test_a_slice_travels_without_the_rest_of_its_table() -> None:
    whole = pa.table({"v": list(range(100_000))})
    message = to_message(whole.slice(10, 5))
    assert from_message(message).column("v").to_pylist() == [10, 11, 12, 13, 14]
    assert len(message.arrow_ipc) < 2_000


def test_a_prologue_carries_its_schema() -> None:
    schema = pa.schema([("word", pa.string()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.int32()))])
    received = from_message(to_message(schema.empty_table()))
    assert received.schema.equals(schema)
    assert received.num_rows == 0


def test_a_small_table_is_not_split() -> None:
    table = pa.table({"v": [1, 2]})
    assert list(split(table)) == [table]


def test_a_large_table_is_split_into_messages_of_a_good_size() -> None:
    table = pa.table({"v": list(range(1_000_000))})
    pieces = list(split(table))
    assert len(pieces) == 8
    assert all(piece.nbytes <= MESSAGE_BYTES for piece in pieces)
    assert pa.concat_tables(pieces).equals(table)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("large", "small"), [(70, 100_000), (7, 1_000), (1, 1_000_000)])
def test_large_rows_that_are_next_to_each_other_are_split_as_well(large: int, small: int, first: bool) -> None:
    values = ["x" * MESSAGE_BYTES] * large, ["a short line"] * small
    table = pa.table({"v": [value for some in (values if first else values[::-1]) for value in some]})
    pieces = list(split(table))
    largest, count = max(piece.nbytes for piece in pieces), len(pieces)
    assert largest <= 2 * MESSAGE_BYTES
    assert count <= 4 * table.nbytes // MESSAGE_BYTES, "and not many more than that takes"
    assert pa.concat_tables(pieces).equals(table)


@pytest.mark.parametrize("size", [5, 7])
def test_what_is_sent_is_refused_before_it_is_queued(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "LARGEST_MESSAGE_BYTES", 6_000)
    table = pa.table({"v": ["x" * 1_000 * part for part in (1, 1, size, 1)]})
    if size == 7:
        with pytest.raises(RecordTooLarge, match=r"^1 record\(s\) take"):
            sendable(table, 1_000)
    else:
        assert pa.concat_tables(sendable(table, 1_000)).equals(table)


def test_one_row_is_never_split_but_a_row_too_large_is_an_error_for_the_author(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "LARGEST_MESSAGE_BYTES", 2 * 1024 * 1024)
    table = pa.table({"v": ["x" * 3 * 1024 * 1024]})
    assert len(list(split(table))) == 1
    with pytest.raises(RecordTooLarge, match="take 3 MiB in one message"):
        to_message(table)


def test_bytes_that_are_not_an_arrow_stream_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_message(RecordBatch(arrow_ipc=b"nonsense", rows=1))


def test_more_records_than_announced_are_refused_before_they_are_there() -> None:
    message = to_message(pa.table({"v": [1, 2, 3]}))
    with pytest.raises(pa.ArrowInvalid, match="says 3 rows, but 1 were announced"):
        from_message(replace(message, rows=1))


def test_sizes_count_control_elements_too() -> None:
    assert size_of(Barrier(1)) == CONTROL_BYTES
    assert size_of(pa.table({"v": list(range(1000))})) == 8000


def test_the_fence_refuses_tokens_below_the_highest_seen() -> None:
    fence = TokenFence()
    assert fence.observe(3)
    assert fence.observe(3)
    assert not fence.observe(2)
    assert fence.highest == 3


def test_a_gate_is_found_at_once_or_when_its_deployment_arrives() -> None:
    registry, gate = GateRegistry(), InputGate([])
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(registry.wait_for, _subtask(), 60)
        registry.register(_subtask(), gate)
        assert waiting.result(60) is gate
    assert registry.wait_for(_subtask(), 0) is gate


def test_a_gate_that_never_opens_is_refused() -> None:
    with pytest.raises(ChannelRefused, match=r"count\[0\] of job 'job', attempt 1, is not running here"):
        GateRegistry().wait_for(_subtask(), 0)


def test_waiting_ends_when_a_newer_attempt_arrives() -> None:
    registry = GateRegistry()
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(registry.wait_for, _subtask(1), 60)
        registry.register(_subtask(2), InputGate([]))
        with pytest.raises(ChannelRefused, match="replaced by attempt 2"):
            waiting.result(60)


def test_an_unregistered_gate_is_not_found() -> None:
    registry = GateRegistry()
    registry.register(_subtask(), InputGate([]))
    registry.unregister(_subtask())
    assert registry.get(_subtask()) is None


def test_waiting_ends_when_the_registry_closes() -> None:
    registry = GateRegistry()
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(registry.wait_for, _subtask(), 60)
        registry.close()
        with pytest.raises(ChannelRefused):
            waiting.result(60)
