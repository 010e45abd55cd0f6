"""ReplayLog: what a channel can send again, against a list of everything that it has carried."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from lockgate_proto.messages import Barrier, EndOfInput, Watermark
from lockgate_taskmanager.exchange.elements import Element, size_of
from lockgate_taskmanager.exchange.replay_log import Kept, ReplayLog, Sent

SCHEMA = pa.schema([("v", pa.int64())])
RECORD = pa.table({"v": [1]})


def _sent(element: Element) -> Sent:
    return Sent(element, size_of(element))


def _log(*elements: Element, max_bytes: int = 1 << 20) -> ReplayLog:
    log = ReplayLog(max_bytes)
    for element in elements:
        log.add(_sent(element))
    return log


def _elements(log: ReplayLog, checkpoint_id: int) -> list[Element] | None:
    again = log.since(checkpoint_id)
    return None if again is None else [sent.element for sent in again]


def test_a_receiver_that_begins_at_a_checkpoint_gets_what_came_behind_its_barrier() -> None:
    first, second, third = (pa.table({"v": [number]}) for number in range(3))
    log = _log(first, Barrier(1), second, Barrier(2), third)
    assert _elements(log, 1) == [second, third]
    assert _elements(log, 2) == [third]
    assert _elements(log, 1) is None  # a later checkpoint is complete


def test_before_the_first_checkpoint_everything_is_kept() -> None:
    assert _elements(_log(RECORD, Watermark(5), RECORD), 0) == [RECORD, Watermark(5), RECORD]


def test_a_completed_checkpoint_frees_what_came_before_it() -> None:
    log = _log(RECORD, Barrier(1), max_bytes=2 * size_of(RECORD) + size_of(Barrier(1)))
    log.completed(1)
    log.add(_sent(RECORD))
    log.add(_sent(RECORD))
    assert _elements(log, 1) == [RECORD, RECORD]


def test_schema_event_time_and_end_are_known_after_their_checkpoint() -> None:
    log = _log(SCHEMA.empty_table(), RECORD, Watermark(3), Watermark(5), EndOfInput(), Barrier(4))
    assert _elements(log, 4) == [SCHEMA.empty_table(), Watermark(5), EndOfInput()]


def test_too_much_since_the_last_checkpoint_cannot_be_sent_again() -> None:
    log = _log(RECORD, Barrier(1), RECORD, RECORD, max_bytes=3 * size_of(RECORD))
    assert _elements(log, 1) is None
    log.add(_sent(Barrier(2)))
    log.add(_sent(RECORD))
    assert _elements(log, 1) is None
    assert _elements(log, 2) == [RECORD]


def test_it_is_known_from_which_checkpoint_on_too_much_was_sent() -> None:
    room = size_of(Barrier(4)) + 2 * size_of(RECORD)
    log = _log(RECORD, Barrier(4), RECORD, max_bytes=room)
    assert log.kept == Kept(room, room, 0)
    for element in (RECORD, Barrier(5), RECORD):
        log.add(_sent(element))
    assert (log.kept.size_bytes, log.kept.since) == (size_of(RECORD) + size_of(Barrier(5)), 5)
    log.completed(4)
    assert log.kept.since == 5
    log.completed(5)
    assert log.kept == Kept(size_of(RECORD), room, 0)


def test_what_was_restored_counts_as_a_barrier() -> None:
    log = ReplayLog(1, base=7)
    log.add(_sent(RECORD))
    assert log.kept == Kept(0, 1, 8)


@given(
    st.lists(st.sampled_from(["record", "barrier", "completed", "watermark"]), max_size=60),
    st.integers(3, 20),
)
def test_what_is_sent_again_is_all_that_came_since(steps: list[str], room: int) -> None:
    """Either all of it, or a clear no; and a yes whenever it has room for what came since."""
    log, size = ReplayLog(room * size_of(RECORD)), size_of(RECORD)
    number, newest, since, carried = 0, 0, list[int](), 0
    behind: dict[int, int] = {}  # by checkpoint: how many records came before its barrier
    for step in steps:
        if step == "record":
            carried += 1
            log.add(Sent(pa.table({"v": [carried]}), size))
        elif step == "watermark":
            log.add(_sent(Watermark(carried)))
        elif step == "barrier":
            number += 1
            behind[number] = carried
            log.add(_sent(Barrier(number)))
        elif number > newest:
            newest = number
            log.completed(newest)
        again = log.since(newest)
        since = list(range(behind.get(newest, 0) + 1, carried + 1))
        assert (again is None) == (newest < log.kept.since)  # the leader knows without asking
        if again is not None:
            tables = [sent.element for sent in again if isinstance(sent.element, pa.Table)]
            assert [table.column("v")[0].as_py() for table in tables] == since
        elif len(steps) < room:
            raise AssertionError("there was room")
