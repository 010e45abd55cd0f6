"""The small parts of the runtime: settings, failures, deliveries, wiring, outputs, uploads."""

from __future__ import annotations

import signal
import threading
from concurrent import futures
from dataclasses import replace

import pyarrow as pa
import pytest
from lockgate_common.security import Credentials
from lockgate_common.settings import SettingsError
from lockgate_proto.codec import MalformedMessage, encode
from lockgate_proto.layout import layout_for, layout_of
from lockgate_proto.messages import (
    AttemptId,
    Barrier,
    Deploy,
    Edge,
    EndOfInput,
    FailureCause,
    FailurePlace,
    JobGraph,
    Layout,
    Participant,
    Partitioning,
    SubtaskId,
    SubtaskState,
    Vertex,
)
from lockgate_taskmanager.exchange.elements import ALONE, BatchPiece, ChannelId, Element
from lockgate_taskmanager.exchange.errors import ChannelBroken, RecordTooLarge
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import ACCEPT_TIMEOUT_MS
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.runtime.failures import LONGEST_TEXT, LONGEST_TRACEBACK, cause_of, place_of, text_of
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.process import USER_ERROR, run
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.subtask_input import Deliveries
from lockgate_taskmanager.runtime.uploads import SnapshotUploads
from lockgate_taskmanager.runtime.wiring import Wiring
from lockgate_taskmanager.task.events import UploadDone, UploadFailed
from lockgate_taskmanager.task.program import (
    DataError,
    Defect,
    Emission,
    SnapshotTooLarge,
    StateUnreadable,
    Unavailable,
    UserCodeFailed,
    UserError,
)

SETTINGS = TaskManagerSettings(zookeeper="127.0.0.1:2181", work_dir="scratch")
ATTEMPT = AttemptId("job", "run", 1)


def test_the_spark_master_follows_the_slots_unless_it_is_set() -> None:
    assert replace(SETTINGS, slots=3).master == "local[3]"
    assert replace(SETTINGS, spark_master="spark://h:7077").master == "spark://h:7077"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zookeeper": ""}, "zookeeper: no server"),
        ({"zookeeper": "zk:99999"}, "zookeeper: 'zk:99999' is invalid, it must be host:port"),
        ({"work_dir": ""}, "work_dir: it is empty"),
        ({"cluster": "a/b"}, "cluster: 'a/b' is not a valid name"),
        ({"bind": "here"}, "bind: 'here' is not host:port"),
        ({"advertise": "h:99999"}, "advertise: 'h:99999' is not host:port"),
        ({"bind": "[::]:0"}, "advertise: bind is [::]:0, every address of this machine"),
        ({"slots": 0}, "slots: 0 is too small; use 1 or more"),
        ({"slots": 1025}, "slots: 1025 is too large; use 1024 or less"),
        ({"max_batch_bytes": 1}, "max_batch_bytes: 1 is too small"),
        ({"replay_log_bytes": -1}, "replay_log_bytes: -1 is too small"),
        ({"warmup_runs": -1}, "warmup_runs: -1 is too small; use 0 or more"),
    ],
)
def test_a_setting_that_cannot_work_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        replace(SETTINGS, **changes).check()  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_good_settings_pass() -> None:
    SETTINGS.check()


def test_a_wrong_setting_ends_the_process_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        assert run(replace(SETTINGS, slots=0)) == USER_ERROR
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert capsys.readouterr().err == "error: slots: 0 is too small; use 1 or more\n"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (UserError("x"), FailureCause.USER_ERROR),
        (DataError("x"), FailureCause.DATA_ERROR),
        (RecordTooLarge("x"), FailureCause.DATA_ERROR),
        (UserCodeFailed("x"), FailureCause.USER_CODE),
        (Unavailable("x"), FailureCause.FAULT),
        (Defect("x"), FailureCause.INTERNAL_ERROR),
        (pa.ArrowInvalid("x"), FailureCause.INTERNAL_ERROR),
        (KeyError("x"), FailureCause.INTERNAL_ERROR),
        (MemoryError("x"), FailureCause.FAULT),
        (RuntimeError("x"), FailureCause.FAULT),
        (StateUnreadable("x"), FailureCause.STATE_UNREADABLE),
        (ChannelBroken("x"), FailureCause.PEER_LOST),
        (OSError("x"), FailureCause.FAULT),
    ],
)
def test_every_error_has_its_cause(error: Exception, cause: FailureCause) -> None:
    assert cause_of(error) is cause


def test_the_place_of_an_error_has_the_authors_traceback_masked_and_cut() -> None:
    place = FailurePlace("sql-1")
    assert place_of(UserError("no column x"), place) is place
    assert place_of(UserError("no column x"), None) is None
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: password=hunter2'
    found = place_of(UserError(text), place)
    assert found is not None
    assert (found.operator_id, found.traceback.splitlines()[1]) == ("sql-1", '  File "a.py", line 3, in f')
    assert "hunter2" not in found.traceback
    long = place_of(UserError(text + "x" * 20_000), None)
    assert long is not None
    assert len(long.traceback) < LONGEST_TRACEBACK + 10


def test_the_text_of_an_error_is_its_sentence_and_never_endless() -> None:
    assert text_of(UserError("no column x")) == "no column x"
    assert text_of(UserError("no file r\udce9sum.csv")) == "no file r\\udce9sum.csv", "a message holds Unicode alone"
    assert len(text_of(UserError("x" * 10_000))) < LONGEST_TEXT + 10


def _values(merged: list[tuple[str, pa.Table]]) -> list[tuple[str, list[object]]]:
    return [(vertex, table.column(0).to_pylist()) for vertex, table in merged]


def test_tables_of_one_vertex_and_schema_are_merged_and_others_are_not() -> None:
    received = [
        ("a", pa.table({"v": [1]})),
        ("b", pa.table({"v": [2]})),
        ("a", pa.table({"v": [3]})),
        ("a", pa.table({"v": ["x"]})),
    ]
    assert _values(list(Deliveries().merge(received))) == [("a", [1, 3]), ("b", [2]), ("a", ["x"])]


def test_a_prologue_is_sent_first_and_once() -> None:
    deliveries = Deliveries()
    schema = pa.schema([("v", pa.int64())])
    received = [("a", pa.table({"v": [1]})), ("a", schema.empty_table()), ("a", schema.empty_table())]
    assert _values(list(deliveries.merge(received))) == [("a", []), ("a", [1])]
    assert list(deliveries.merge([("a", schema.empty_table())])) == []
    assert _values(list(deliveries.merge([("b", schema.empty_table())]))) == [("b", [])]


def _wiring(task_manager_id: str, *edges: Edge, parallelism: int = 2) -> Wiring:
    names = dict.fromkeys(name for edge in edges for name in (edge.source, edge.target))
    graph = JobGraph(vertices=tuple(Vertex(name, name, parallelism) for name in names), edges=edges)
    slots = [Participant(f"tm-{i}", f"127.0.0.1:{i + 1}", f"process {i}") for i in range(parallelism)]
    return Wiring(ATTEMPT, layout_for(graph, slots), task_manager_id)


def _subtask(vertex: str, index: int = 0) -> SubtaskId:
    return SubtaskId(ATTEMPT, vertex, index)


def test_a_forward_edge_connects_equal_subtasks_and_others_all() -> None:
    wiring = _wiring("tm-1", Edge("a", "b", Partitioning.FORWARD), Edge("b", "c", Partitioning.HASH))
    assert wiring.inputs(_subtask("a", 1)) == ()
    assert wiring.inputs(_subtask("b", 1)) == (ChannelId("a", 1),)
    assert wiring.inputs(_subtask("c", 1)) == (ChannelId("b", 0), ChannelId("b", 1))
    assert wiring.here == (_subtask("a", 1), _subtask("b", 1), _subtask("c", 1))
    assert wiring.parallelism == {"a": 2, "b": 2, "c": 2}


def test_two_edges_between_two_vertices_share_their_channels() -> None:
    edges = (Edge("a", "b", Partitioning.HASH), Edge("a", "b", Partitioning.BROADCAST))
    wiring = _wiring("tm-0", *edges, parallelism=1)
    assert wiring.inputs(_subtask("b")) == (ChannelId("a", 0),)
    gate = InputGate(wiring.inputs(_subtask("b")))
    peers = PeerChannels(Credentials())
    outputs = wiring.outputs(_subtask("a"), {_subtask("b"): gate, _subtask("a"): InputGate([])}, peers, 1, print)
    outputs.start(0)
    outputs.emit([Emission(0, 0, pa.table({"v": [1]})), Emission(1, 0, pa.table({"v": [2]}))])
    outputs.broadcast(EndOfInput())
    assert [type(element).__name__ for _, element in gate.poll(0) + gate.poll(0) + gate.poll(0)] == ["Table"] * 2 + [
        "EndOfInput"
    ]


GRAPH = JobGraph(vertices=(Vertex("a", "a", 2), Vertex("b", "b", 1)))


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        (b"", "has no graph"),
        (b"\xff", "are not a Layout"),
        (encode(Layout(GRAPH, (Participant("tm-0"),), (0,))), "too few slots"),
        (encode(Layout(GRAPH, (Participant("tm-0"),), (0, 1))), "belongs to none"),
        (encode(Layout(GRAPH, (Participant("tm-0"),), (0, -1))), "belongs to none"),
    ],
)
def test_a_layout_that_contradicts_itself_is_refused(layout: bytes, problem: str) -> None:
    with pytest.raises(MalformedMessage, match=problem):
        layout_of(Deploy(ATTEMPT, layout=layout))


class _Channel:
    def __init__(self) -> None:
        self.sent: list[Element] = []
        self.is_accepted = False
        self.is_canceled = False

    def start(self) -> None:
        """Nothing to connect."""

    def send(self, element: Element, place: BatchPiece = ALONE) -> None:  # noqa: ARG002
        self.sent.append(element)

    def require_intact(self) -> None:
        """It is."""

    def cancel(self) -> None:
        self.is_canceled = True


def test_emissions_find_their_channel_and_barriers_go_to_all() -> None:
    channels = {("b", 0): _Channel(), ("b", 1): _Channel(), ("c", 0): _Channel()}
    outputs = OutputSet(channels, {0: "b", 3: "c"})
    outputs.emit([Emission(0, 1, pa.table({"v": [1]}))])
    outputs.broadcast(Barrier(8))
    assert [len(channel.sent) for channel in channels.values()] == [1, 2, 1]
    outputs.cancel()
    assert all(channel.is_canceled for channel in channels.values())


def test_a_receiver_that_does_not_answer_in_time_is_lost() -> None:
    channel = _Channel()
    outputs = OutputSet({("b", 0): channel}, {0: "b"})
    outputs.start(1_000)
    assert not outputs.check_accepted(1_000 + ACCEPT_TIMEOUT_MS)
    with pytest.raises(ChannelBroken):
        outputs.check_accepted(1_001 + ACCEPT_TIMEOUT_MS)
    channel.is_accepted = True
    assert outputs.check_accepted(99_999_999)


class _Snapshot:
    def __init__(self, error: Exception | None = None, gate: threading.Event | None = None) -> None:
        self._error, self._gate = error, gate
        self.is_persisted = False
        self.is_released = False

    def release(self) -> None:
        self.is_released = True

    def persist(self) -> SubtaskState:
        if self._gate is not None:
            self._gate.wait(60)
        if self._error is not None:
            raise self._error
        self.is_persisted = True
        return SubtaskState("v", 0)


@pytest.mark.parametrize("error", [OSError(28, "No space left"), SnapshotTooLarge("too large"), KeyError("oops")])
def test_an_upload_ends_in_done_or_failed(error: Exception) -> None:
    reported: list[UploadDone | UploadFailed] = []
    with futures.ThreadPoolExecutor(1) as pool:
        uploads = SnapshotUploads(pool, reported.append)
        uploads.keep(1, _Snapshot())
        uploads.start(1)
        uploads.keep(2, _Snapshot(error))
        uploads.start(2)
    done, failed = reported
    assert isinstance(done, UploadDone)
    assert isinstance(failed, UploadFailed)
    assert (done.checkpoint_id, failed.checkpoint_id) == (1, 2)
    assert str(error) in failed.reason


def test_a_dropped_upload_that_has_not_begun_never_does() -> None:
    gate, second = threading.Event(), _Snapshot()
    with futures.ThreadPoolExecutor(1) as pool:
        reported: list[UploadDone | UploadFailed] = []
        uploads = SnapshotUploads(pool, reported.append)
        uploads.keep(1, _Snapshot(gate=gate))
        uploads.start(1)
        uploads.keep(2, second)
        uploads.start(2)
        uploads.drop(2)
        gate.set()
        assert uploads.close(60)
    assert [upload_done.checkpoint_id for upload_done in reported] == [1]
    assert not second.is_persisted
    assert second.is_released


def test_an_unwanted_frozen_state_is_released() -> None:
    dropped, left = _Snapshot(), _Snapshot()
    with futures.ThreadPoolExecutor(1) as pool:
        uploads = SnapshotUploads(pool, lambda _: None)
        uploads.keep(1, dropped)
        uploads.keep(2, left)
        uploads.drop(1)
        assert (dropped.is_released, left.is_released) == (True, False)
        assert uploads.close(60)
    assert left.is_released


def test_close_reports_an_upload_still_in_progress() -> None:
    gate = threading.Event()
    with futures.ThreadPoolExecutor(1) as pool:
        reported = threading.Event()
        uploads = SnapshotUploads(pool, lambda _: reported.set())
        uploads.keep(1, _Snapshot(gate=gate))
        uploads.start(1)
        is_clean = uploads.close(0.05)
        gate.set()
        assert not is_clean or reported.is_set()
