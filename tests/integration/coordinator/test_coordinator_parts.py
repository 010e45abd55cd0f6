"""The small parts of the shell, each on its own: actor, workers, files, links, watchers, settings, fault points."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from lockgate_common import storage
from lockgate_common.clock import monotonic_ms
from lockgate_common.kept_events import KEPT_OF_A_KIND, MOST_EVENTS
from lockgate_common.settings import SettingsError
from lockgate_coordinator.runtime import link as links
from lockgate_coordinator.runtime import workers as keyed_workers
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.errors import Stopped, StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run, metadata_uri
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.watch import WatchEnd, WatchHub
from lockgate_coordinator.runtime.workers import KeyedWorkers
from lockgate_proto import messages as m
from lockgate_proto.codec import encode

WAIT_S = 120.0


# -- actor ------------------------------------------------------------------------------------------------------------


def test_the_actor_continues_after_a_failing_call(caplog: pytest.LogCaptureFixture) -> None:
    actor = Actor("test-actor")
    actor.start()

    def fail() -> None:
        raise ValueError("on purpose")

    actor.tell(fail)
    assert actor.ask(lambda: 7).result(WAIT_S) == 7
    with pytest.raises(ValueError, match="on purpose"):
        actor.ask(fail).result(WAIT_S)
    actor.stop()
    assert "on purpose" in caplog.text
    with pytest.raises(Stopped):
        actor.ask(lambda: 7).result(WAIT_S)


def test_timers_fire_in_order_unless_cancelled() -> None:
    actor, done, seen = Actor("test-actor"), threading.Event(), []
    now = monotonic_ms()
    actor.at(now + 40, done.set)
    actor.at(now + 20, lambda: seen.append("second"))
    actor.at(now + 10, lambda: seen.append("first"))
    actor.at(now + 15, lambda: seen.append("cancelled")).cancel()
    actor.start()
    assert done.wait(WAIT_S)
    actor.stop()
    assert seen == ["first", "second"]


def test_a_due_timer_waits_behind_earlier_elements() -> None:
    actor, seen, done = Actor("test-actor"), [], threading.Event()
    actor.tell(lambda: seen.append("heartbeat"))
    actor.at(monotonic_ms() - 5, lambda: (seen.append("timeout"), done.set()))  # type: ignore[func-returns-value]
    actor.start()
    assert done.wait(WAIT_S)
    actor.stop()
    assert seen == ["heartbeat", "timeout"]


# -- workers ----------------------------------------------------------------------------------------------------------


def test_one_key_is_served_in_order_and_blocks_no_other() -> None:
    workers, gate, seen = KeyedWorkers("test-worker"), threading.Event(), []
    workers.submit("slow", lambda: gate.wait(WAIT_S))
    rest = [workers.submit("slow", lambda n=n: seen.append(n)) for n in range(20)]  # type: ignore[misc]
    assert workers.submit("quick", lambda: "done").result(WAIT_S) == "done"
    assert not seen
    gate.set()
    for item in rest:
        item.result(WAIT_S)
    assert seen == list(range(20))
    workers.close()


def test_closing_fails_waiting_calls() -> None:
    workers, gate, began = KeyedWorkers("test-worker"), threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        gate.wait(WAIT_S)

    running = workers.submit("key", slow)
    assert began.wait(WAIT_S)
    waiting = workers.submit("key", lambda: None)
    closer = threading.Thread(target=workers.close)
    closer.start()
    with pytest.raises(Stopped):
        waiting.result(WAIT_S)
    gate.set()
    closer.join()
    running.result(WAIT_S)
    with pytest.raises(Stopped):
        workers.submit("key", lambda: None).result(WAIT_S)


def test_however_many_keys_hang_the_others_continue_to_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keyed_workers, "_CLOSE_S", 1.0)
    workers, gate, seen = KeyedWorkers("test-worker"), threading.Event(), []
    try:
        hung = [workers.submit(f"hung-{n}", gate.wait) for n in range(50)]
        behind = workers.submit("hung-7", lambda: None)
        for n in range(20):
            rest = [workers.submit("good", lambda n=n, k=k: seen.append((n, k))) for k in range(3)]  # type: ignore[misc]
            rest[-1].result(WAIT_S)
        assert seen == [(n, k) for n in range(20) for k in range(3)]
        began = time.monotonic()
        workers.close()
        assert time.monotonic() - began < 25  # for all of them together: one after another would take 50 s
        assert "hung-0, hung-1, hung-10," in caplog.text
        assert "good" not in caplog.text
        for future in (*hung, behind):
            with pytest.raises(Stopped):
                future.result(0)
    finally:
        gate.set()  # what comes back after the end does no harm; that no thread is left is looked at after every test


def test_a_process_ends_although_a_call_hangs() -> None:
    program = """
import threading
from lockgate_coordinator.runtime import workers
workers._CLOSE_S = 0.1
ours = workers.KeyedWorkers("test-worker")
began = threading.Event()
ours.submit("hung", lambda: (began.set(), threading.Event().wait()))
began.wait()
ours.close()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=WAIT_S, check=False).returncode == 0


def test_with_a_bound_the_keys_beyond_it_wait_and_keep_their_order() -> None:
    workers, gate, seen = KeyedWorkers("test-worker", threads=2), threading.Event(), []
    for key in ("first", "second"):
        workers.submit(key, lambda: gate.wait(WAIT_S))
    rest = [workers.submit(key, lambda k=key, n=n: seen.append((k, n))) for n in range(9) for key in "abc"]  # type: ignore[misc]
    assert not seen
    gate.set()
    for item in rest:
        item.result(WAIT_S)
    for key in "abc":
        assert [n for k, n in seen if k == key] == list(range(9))
    workers.close()


def test_calls_that_hang_leave_the_bound_to_the_others() -> None:
    workers = KeyedWorkers("test-worker", threads=2, patience_s=0.05)
    gate, seen = threading.Event(), []
    try:
        hung = [workers.submit(f"hung-{n}", lambda: gate.wait(WAIT_S)) for n in range(7)]
        behind = workers.submit("hung-0", lambda: seen.append("behind"))
        rest = [workers.submit(key, lambda k=key, n=n: seen.append((k, n))) for n in range(9) for key in "abc"]  # type: ignore[misc]
        for item in rest:
            item.result(WAIT_S)
        for key in "abc":
            assert [n for k, n in seen if k == key] == list(range(9))
        assert "behind" not in seen
        gate.set()
        behind.result(WAIT_S)
        assert all(future.result(WAIT_S) for future in hung)
        assert workers.submit("a", lambda: "after").result(WAIT_S) == "after"
    finally:
        gate.set()
        workers.close()


def test_no_more_keys_than_the_bound_are_served_at_the_same_time() -> None:
    workers, lock, done = KeyedWorkers("test-worker", threads=3, patience_s=WAIT_S), threading.Lock(), []
    now, most = [0], [0]

    def work(number: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        if number < 3:
            together.wait(WAIT_S)  # so many do run at once
        with lock:
            now[0] -= 1
            done.append(number)

    together = threading.Barrier(3)
    for item in [workers.submit(f"key-{n}", lambda n=n: work(n)) for n in range(200)]:  # type: ignore[misc]
        item.result(WAIT_S)
    assert (most[0], sorted(done)) == (3, list(range(200)))
    workers.close()


def test_a_key_that_gets_no_thread_waits_for_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, gate = KeyedWorkers("test-worker"), threading.Event()
    first = workers.submit("first", lambda: gate.wait(WAIT_S))

    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        second = workers.submit("second", lambda: "done")
    gate.set()
    assert second.result(WAIT_S) == "done"
    assert first.result(WAIT_S)
    workers.close()


def test_without_a_thread_to_be_had_one_call_fails_and_the_next_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = KeyedWorkers("test-worker")

    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError, match="new thread"):
            workers.submit("key", lambda: None).result(WAIT_S)
    assert workers.submit("key", lambda: "done").result(WAIT_S) == "done"
    workers.close()


# -- files ------------------------------------------------------------------------------------------------------------

METADATA = m.CheckpointMetadata(1, "job", "run", 3, m.CheckpointKind.CHECKPOINT, 5)


RUN = Run("job", "run")


def write(files: MetadataFiles, metadata: m.CheckpointMetadata = METADATA) -> tuple[str, str]:
    stored = files.write(RUN, metadata, encode(metadata))
    return stored.pointer, stored.checksum


def test_metadata_round_trips_without_leftovers(tmp_path: Path) -> None:
    files = MetadataFiles(str(tmp_path / "with space"), "c")
    pointer, checksum = write(files)
    assert files.read(pointer, checksum) == METADATA
    folder = tmp_path / "with space" / "c" / "job" / "run" / "chk-3"
    assert [path.name for path in folder.iterdir()] == ["_metadata"]
    assert files.read(str(folder)) == files.read(str(folder / "_metadata")) == METADATA
    assert files.checkpoint_ids(RUN) == (3,)
    files.delete_pointed(pointer)
    assert not folder.exists()
    files.delete_pointed(pointer)
    files.delete_run(RUN)
    assert files.checkpoint_ids(RUN) == ()
    assert list((tmp_path / "with space" / "c").iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"\xff\xff", b"flipped"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    files = MetadataFiles(str(tmp_path), "c")
    pointer, checksum = write(files)
    path = tmp_path / "c" / "job" / "run" / "chk-3" / "_metadata"
    path.write_bytes(damage)
    with pytest.raises(StorageError, match="_metadata is corrupt") as caught:
        files.read(pointer, checksum)
    assert not caught.value.retryable
    path.unlink()
    with pytest.raises(StorageError, match="does not exist") as caught:
        files.read(pointer, checksum)
    assert not caught.value.retryable


def test_a_file_that_is_missing_with_the_whole_storage_is_retried(tmp_path: Path) -> None:
    files = MetadataFiles(str(tmp_path / "mounted"), "c")
    pointer, checksum = write(files)
    (tmp_path / "mounted").rename(tmp_path / "away")
    with pytest.raises(StorageError, match="the storage is away or has just come back") as caught:
        files.read(pointer, checksum)
    assert caught.value.retryable
    with pytest.raises(StorageError, match="does not exist") as caught:  # no part of this storage: a mistyped pointer
        files.read(str(tmp_path / "elsewhere" / "c" / "job" / "run" / "chk-3"))
    assert not caught.value.retryable
    (tmp_path / "away").rename(tmp_path / "mounted")
    assert files.read(pointer, checksum).checkpoint_id == 3


def test_a_file_missed_while_the_storage_comes_back_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MetadataFiles(str(tmp_path / "mounted"), "c")
    pointer, checksum = write(files)
    (tmp_path / "mounted").rename(tmp_path / "away")

    def exists(location: storage.Location) -> bool:
        if (tmp_path / "away").exists():
            (tmp_path / "away").rename(tmp_path / "mounted")
        return Path(location.path).exists()

    monkeypatch.setattr(storage, "exists", exists)
    with pytest.raises(StorageError, match="the storage is away or has just come back") as caught:
        files.read(pointer, checksum)
    assert caught.value.retryable
    assert files.read(pointer, checksum).checkpoint_id == 3


def test_a_later_format_is_reported(tmp_path: Path) -> None:
    files = MetadataFiles(str(tmp_path), "c")
    pointer, _ = write(files, m.CheckpointMetadata(9, "job", "run", 3))
    with pytest.raises(StorageError, match="has format 9, and Lockgate"):
        files.read(pointer)


def test_a_folder_that_is_not_a_checkpoint_is_never_deleted(tmp_path: Path) -> None:
    files = MetadataFiles(str(tmp_path), "c")
    with pytest.raises(StorageError, match="nothing was deleted"):
        files.delete_pointed(str(tmp_path / "precious" / "_metadata"))


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MetadataFiles(str(tmp_path), "c")
    pointer, checksum = write(files)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lockgate_common.storage.os.fsync", full)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        files.write(RUN, METADATA, b"other")
    assert caught.value.retryable
    assert files.read(pointer, checksum) == METADATA
    assert [path.name for path in (tmp_path / "c" / "job" / "run" / "chk-3").iterdir()] == ["_metadata"]


def test_one_file_has_several_names() -> None:
    assert metadata_uri("/a/b/") == metadata_uri("file:///a/b/_metadata") == "file:///a/b/_metadata"


# -- links and watchers -----------------------------------------------------------------------------------------------


def test_a_peer_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_QUEUED", 2)
    link = links.TaskManagerLink("peer")
    assert [link.send(m.CoordinatorMessage(n)) for n in range(3)] == [True, True, False]
    assert link.end is not None
    assert link.end[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_watcher_gets_every_event_but_only_the_newest_status() -> None:
    hub = WatchHub()
    hub.event(m.JobEvent(text="before"))
    watcher = hub.watch(m.JobStatus("job"))
    for n in range(3):
        hub.event(m.JobEvent(text=str(n)))
        hub.status(m.JobStatus("job", attempt=n))
    hub.finish(WatchEnd.JOB_ENDED)
    updates = [update.make().update for update in iter(watcher.take, None)]
    texts = [update.text for update in updates if isinstance(update, m.JobEvent)]
    assert updates[0] == m.JobStatus("job")
    assert texts == ["before", "0", "1", "2"]
    assert updates[-1] == m.JobStatus("job", attempt=2)
    assert len(updates) == 6


def test_a_watcher_that_is_far_behind_is_let_go() -> None:
    hub = WatchHub()
    watcher = hub.watch(m.JobStatus("job"))
    for n in range(2 * MOST_EVENTS):
        hub.event(m.JobEvent(text=str(n)))
    assert watcher.take() is None
    assert watcher.end is WatchEnd.TOO_SLOW
    late = hub.watch(m.JobStatus("job"))
    hub.finish(WatchEnd.JOB_ENDED)
    assert len(list(iter(late.take, None))) == KEPT_OF_A_KIND + 2, "and the status, and the first one of its attempt"


def test_a_watcher_that_comes_hours_later_gets_the_takeover_in_order() -> None:
    hub = WatchHub()
    takeover = [m.JobEvent(m.JobEventKind.LEADER_GRANTED), m.JobEvent(m.JobEventKind.JOB_RECOVERED)]
    often = [m.JobEvent(m.JobEventKind.CHECKPOINT_COMPLETED, checkpoint_id=n) for n in range(10_000)]
    for event in (*takeover, *often):
        hub.event(event)
    watcher = hub.watch(m.JobStatus("job"))
    hub.finish(WatchEnd.JOB_ENDED)
    updates = [update.make().update for update in iter(watcher.take, None)]
    assert updates[1:] == [*takeover, often[0], *often[-KEPT_OF_A_KIND:]]


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"zookeeper": ""}, "zookeeper"),
        ({"zookeeper": "zk:port"}, "zookeeper"),
        ({"storage": ""}, "storage"),
        ({"storage": "s3://AKIA:secret@bucket/x"}, "storage"),
        ({"storage": "s3://bucket/x?secret_key=secret"}, "storage"),
        ({"cluster": "a/b"}, "cluster"),
        ({"bind": "7070"}, "bind"),
        ({"advertise": "host:port"}, "advertise"),
        ({"bind": "0.0.0.0:7070"}, "advertise"),
        ({"coordinator_id": "a b"}, "coordinator_id"),
        ({"heartbeat_ms": 0}, "heartbeat_ms"),
        ({"heartbeat_ms": 500, "heartbeat_timeout_ms": 600}, "heartbeat_timeout_ms"),
        ({"max_watchers": 0}, "max_watchers"),
    ],
)
def test_settings_that_cannot_work_are_named(changes: dict[str, object], named: str) -> None:
    values: dict[str, object] = {"zookeeper": "z:1", "storage": "/s"} | changes
    with pytest.raises(SettingsError, match=f"^{named}: "):
        CoordinatorSettings(**values).check()  # type: ignore[arg-type]
