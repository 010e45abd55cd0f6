"""What a task manager does with sources and sinks of an author's own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import FailureCause, PythonSource, SinkTransaction, SplitState
from lockgate_proto.transactions import Transaction
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.spark.chain import loaded
from lockgate_taskmanager.spark.sinks import custom
from lockgate_taskmanager.spark.sinks.custom import CustomWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.spark.sources.custom import ConnectorFailed, CustomReader, discover
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import DataError, Exhausted, Idle, StateUnreadable, UserError
from pyspark import cloudpickle

from tests.connectors import JsonFolder, Squares

pytestmark = pytest.mark.usefixtures("processes_apart")

SCHEMA = pa.schema([("split", pa.string()), ("n", pa.int64()), ("square", pa.int64())])
WHERE = "operator 'orders'"


def reader(source: Any, *splits: SplitState, complete: bool = True) -> CustomReader:
    made = CustomReader(PythonSource(cloudpickle.dumps(source), schema=source.schema), SCHEMA, WHERE)
    made.assign(splits, complete)
    return made


def read_all(source: CustomReader, budget_bytes: int = 10_000) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while isinstance(reading := source.read(budget_bytes, 0), Reading):
        assert reading.content.schema == SCHEMA
        found += [(row["split"], row["n"]) for row in reading.content.to_pylist()]
    assert isinstance(reading, Exhausted)
    return found


@pytest.mark.parametrize("form", ["arrow", "pandas"])
def test_every_split_is_read_to_its_end_once(form: str) -> None:
    source = reader(Squares(3, 500, form=form), SplitState("a", 0, 3), SplitState("b", 0, 500), SplitState("c", 0, 0))
    assert sorted(read_all(source)) == [("a", n) for n in range(3)] + [("b", n) for n in range(500)]
    assert source.splits() == (SplitState("a", 3, 3), SplitState("b", 500, 500), SplitState("c", 0, 0))


def test_the_backlog_of_a_python_source_is_the_splits_with_known_ends() -> None:
    source = reader(Squares(3, 500), SplitState("a", 0, 3), SplitState("b", 0, 500), SplitState("c", 0, 0))
    assert source.unread(0) == Backlog(splits=2)
    read_all(source)
    assert source.unread(0) == Backlog(splits=0)
    assert reader(Squares(3), SplitState("a", 0, -1)).unread(0) == Backlog()


def test_splits_take_turns() -> None:
    source = reader(Squares(900, 900), SplitState("a", 0, 900), SplitState("b", 0, 900))
    order = [
        reading.content["split"][0].as_py() for _ in range(4) if isinstance(reading := source.read(1000, 0), Reading)
    ]
    assert order == ["a", "b", "a", "b"]


def test_reading_continues_from_restored_offsets() -> None:
    source = reader(Squares(10, 10))
    source.assign((SplitState("a", 7, 10), SplitState("b", 10, 10)), True)
    source.assign((SplitState("a", 0, 10),), True)  # said again
    assert read_all(source) == [("a", 7), ("a", 8), ("a", 9)]


def test_the_size_of_ranges_follows_the_budget_and_the_size_of_rows() -> None:
    class Wide(Squares):
        def read(self, split: str, start: int, end: int) -> Any:
            return super().read(split, start, end).set_column(2, "split", pa.array(["x" * 10_000] * (end - start)))

    source = reader(Wide(10**6), SplitState("a", 0, 10**6))
    sizes = [reading.rows for _ in range(3) if isinstance(reading := source.read(100_000, 0), Reading)]
    assert sizes[0] == 1000
    assert sizes[1:] == [9, 9]


def test_a_source_that_has_nothing_yet_is_asked_again_later_and_one_that_never_will_ends() -> None:
    class Waiting(Squares):
        idle_ms = 70

        def plan(self, split: str, start: int, limit: int) -> int | None:
            if split == "b":
                return None
            return min(start + limit, 5)

    source = reader(Waiting(None, None), SplitState("a", 0, -1), SplitState("b", 0, -1), complete=False)
    assert isinstance(source.read(10_000, 0), Reading)
    assert source.read(10_000, 0) == Idle(70)
    assert source.splits() == (SplitState("a", 5, -1), SplitState("b", 0, 0))
    ended = reader(Waiting(None, None), SplitState("b", 3, -1))
    assert isinstance(ended.read(10_000, 0), Exhausted)
    assert ended.splits() == (SplitState("b", 3, 3),)


def test_the_authors_source_is_opened_when_it_is_first_read_and_closed() -> None:
    events: list[str] = []
    source = reader(Squares(2), SplitState("a", 0, 2))
    source._connector.open = lambda: events.append("open")  # type: ignore[method-assign]
    source._connector.close = lambda: events.append("close")  # type: ignore[method-assign]
    source.spec()
    source.close()
    assert events == []
    read_all(source)
    source.close()
    source.close()
    assert events == ["open", "close"]


def raising(*_: object) -> Any:
    raise ConnectionError("no route")


def puzzled(*_: object) -> Any:
    raise KeyError("n")


def given(value: Any) -> Callable[..., Any]:
    return lambda *_: value


@pytest.mark.parametrize(
    ("method", "answer", "kind", "sentence"),
    [
        ("open", raising, ConnectorFailed, "open() raised ConnectionError: no route"),
        ("plan", raising, ConnectorFailed, "plan() raised ConnectionError: no route"),
        ("read", raising, ConnectorFailed, "read() raised ConnectionError: no route"),
        ("read", puzzled, DataError, "read() raised KeyError: 'n'"),
        ("open", puzzled, ConnectorFailed, "open() raised KeyError: 'n'"),
        ("plan", given(-1), DataError, "plan('a', 0, 100) returned -1; it must return the end of the range"),
        ("plan", given(1.5), DataError, "plan('a', 0, 100) returned 1.5"),
        ("plan", given(True), DataError, "plan('a', 0, 100) returned True"),
        ("read", given([1]), DataError, "read() returned a list; it must return a pyarrow Table or a DataFrame"),
        ("read", given(pa.table({"n": [1]})), DataError, "has no column 'split', which the source's schema has"),
        (
            "read",
            given(pa.table({"split": ["a"], "n": ["x"], "square": [1]})),
            DataError,
            "split 'a' does not fit the source's schema",
        ),
    ],
)
def test_errors_are_one_sentence(method: str, answer: Any, kind: type[Exception], sentence: str) -> None:
    source = reader(Squares(5), SplitState("a", 0, 5))
    setattr(source._connector, method, answer)
    with pytest.raises(kind) as caught:
        source.read(10_000, 0)
    assert str(caught.value).startswith(WHERE)
    assert sentence in str(caught.value)
    assert cause_of(caught.value) is (FailureCause.USER_CODE if kind is ConnectorFailed else FailureCause.DATA_ERROR)


def test_new_splits_are_discovered_beyond_known_ones() -> None:
    source = PythonSource(cloudpickle.dumps(Squares(3, None)), schema=Squares.schema)
    assert discover(source, (), WHERE) == ((SplitState("a", 0, 3), SplitState("b", 0, -1)), True)
    assert discover(source, ("a",), WHERE) == ((SplitState("b", 0, -1),), True)
    assert discover(replace(source, continuous=True), ("a", "b"), WHERE) == ((), False)


def test_invalid_splits_are_refused() -> None:
    wrong = Squares()
    wrong.ends = {"a": -3}
    with pytest.raises(
        UserError, match=r"splits\(\) has 'a': -3; it must map names to the offset of their end, or to None"
    ):
        discover(PythonSource(cloudpickle.dumps(wrong)), (), WHERE)


def test_an_object_pickled_by_another_client_must_have_the_methods() -> None:
    with pytest.raises(UserError, match=r"its source is a dict, which has no method splits\(\)"):
        CustomReader(PythonSource(cloudpickle.dumps({})), SCHEMA, WHERE)
    with pytest.raises(UserError, match="its sink cannot be loaded on the task manager"):
        loaded(b"nonsense", WHERE, "its sink")


def context(attempt: int = 1, subtask: int = 0, parallelism: int = 1, run: str = "run") -> SinkContext:
    return SinkContext("job", run, attempt, "v", subtask, "op", WHERE, parallelism)


def test_a_new_attempt_aborts_only_transactions_of_older_ones(tmp_path: Path) -> None:
    folder = JsonFolder(tmp_path)
    folder.open()
    table = pa.table({"n": [1]})
    left = Transaction("run", "op", 0, 1, 5), Transaction("run", "op", 2, 1, 5)
    others = (
        Transaction("run", "op", 1, 1, 5),  # another subtask's
        Transaction("run", "op", 0, 3, 7),  # of a later attempt: this one is the zombie
        Transaction("run", "op", 0, 2, 6),  # of this attempt
        Transaction("other", "op", 0, 1, 5),
        Transaction("run", "op-2", 0, 1, 5),
    )
    for transaction in (*left, *others):
        folder.stage(transaction, table)
    (tmp_path / "staged" / "a note of somebody").write_text("")
    CustomWriter(context(attempt=2, parallelism=2), folder).restore([])
    assert set(folder.staged()) == {*(other.name for other in others), "a note of somebody"}
    assert folder.visible() == []


def test_rows_are_staged_once_for_any_number_of_snapshots(tmp_path: Path) -> None:
    staged: list[str] = []

    class Counting(JsonFolder):
        def stage(self, transaction: Transaction, rows: pa.Table) -> None:
            staged.append(transaction.name)
            super().stage(transaction, rows)

    sink = CustomWriter(context(), Counting(tmp_path))
    sink.write(pa.table({"n": [1]}))
    for checkpoint_id in (1, 2):  # 1 was aborted
        (stored,) = [sealed.persist(InlineBackend(0).writer(checkpoint_id)) for sealed in sink.seal(checkpoint_id)]
    assert staged == ["run~op~0~1~1"]
    assert stored == SinkTransaction(1, 0, job_key="job", run_id="run", name="run~op~0~1~1")
    sink.commit(2)
    assert JsonFolder(tmp_path).visible() == [{"n": 1}]


def test_a_sink_that_raises_is_a_fault_with_its_words(tmp_path: Path) -> None:
    folder = JsonFolder(tmp_path)
    sink = CustomWriter(context(), folder)
    sink.write(pa.table({"n": [1]}))
    (pending,) = sink.seal(1)
    folder.stage = raising  # type: ignore[method-assign]
    with pytest.raises(ConnectorFailed, match=r"operator 'orders': stage\(\) raised ConnectionError: no route"):
        pending.persist(InlineBackend(0).writer(1))
    del folder.stage  # type: ignore[method-assign]
    pending.persist(InlineBackend(0).writer(2))
    folder.commit = raising  # type: ignore[method-assign]
    with pytest.raises(ConnectorFailed, match=r"commit\(\) raised") as caught:
        sink.commit(2)
    assert cause_of(caught.value) is FailureCause.USER_CODE


def test_closing_never_gets_in_the_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = JsonFolder(tmp_path)
    folder.close = raising  # type: ignore[method-assign]
    sink = CustomWriter(context(), folder)
    sink.restore([])
    with caplog.at_level(logging.WARNING):
        sink.close()
    assert "close() raised ConnectionError: no route" in caplog.text


def test_a_stage_that_hangs_does_not_delay_the_end_of_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom, "_CLOSE_WAIT_S", 0.01)
    is_staging, should_continue = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        is_staging.set()
        assert should_continue.wait(60)

    folder = JsonFolder(tmp_path)
    folder.stage = hang  # type: ignore[method-assign]
    sink = CustomWriter(context(), folder)
    sink.write(pa.table({"n": [1]}))
    (pending,) = sink.seal(1)
    thread = threading.Thread(target=pending.persist, args=(InlineBackend(0).writer(1),))
    thread.start()
    assert is_staging.wait(60)
    sink.close()  # returns
    should_continue.set()
    thread.join()


def test_output_of_another_kind_of_sink_cannot_be_restored(tmp_path: Path) -> None:
    with pytest.raises(StateUnreadable, match="output of another kind of sink"):
        CustomWriter(context(), JsonFolder(tmp_path)).restore([SinkTransaction(3, 0, ("_staging/run/x",))])
