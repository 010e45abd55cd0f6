"""Broadcast state: the records that an object makes it of, and the copy that a restored object is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    ObjectState,
    OnError,
    Operator,
    OperatorState,
    RecordCall,
    RecordForm,
    RecordFunction,
)
from lockgate_taskmanager.spark.functions.object_restore import Owner
from lockgate_taskmanager.spark.functions.object_state import StateOfObject
from lockgate_taskmanager.spark.functions.stage import FunctionContext, FunctionStage
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.task.program import (
    Canceled,
    DataError,
    SnapshotOrder,
    StateUnreadable,
    UserCodeFailed,
    UserError,
)
from pyspark import cloudpickle

OPERATOR_STATE = Path(__file__).parents[5] / "docs" / "operator-state.md"
FIXED, BROADCAST = ObjectState.OBJECT_STATE_FIXED, ObjectState.OBJECT_STATE_BROADCAST


class Model:
    """Adds up what is broadcast."""

    state_fields = ("total", "versions")

    def __init__(self) -> None:
        self.total, self.versions = 0, list[int]()

    def process_broadcast(self, record: Any) -> Any:
        if record["n"] == -1:
            raise ConnectionError("no server")
        self.total += 100 // record["n"]
        self.versions.append(record["n"])
        return "a score" if record["n"] == -2 else None

    def __call__(self, record: Any) -> Any:
        return record["n"] < self.total


class Whole(Model):
    """The same as one value."""

    state_fields = ()

    def snapshot_state(self) -> Any:
        return [self.total]

    def restore_state(self, state: Any) -> None:
        (self.total,) = state


class Parts(Whole):
    """The same in parts."""

    def snapshot_state(self) -> Any:
        return {"total": self.total}

    def changes_since_last_checkpoint(self) -> Any:
        return {"total": self.total}

    def restore_state(self, state: Any) -> None:
        self.total = state["total"]


def no_check() -> None: ...


def stage(function: Any, form: RecordForm = RecordForm.RECORDS) -> FunctionStage:
    kind = RecordFunction(cloudpickle.dumps(function), "f", RecordCall.FILTER, form, state=BROADCAST)
    session: Any = None  # asked for the declared schema only
    operator = Operator(id="f", kind=kind, on_error=OnError.SKIP)
    made = FunctionStage(operator, FunctionContext("job", "f", 0, 2, 1), session, False, has_files=True)
    made.open(0)
    return made


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


@pytest.mark.parametrize("form", RecordForm)
def test_the_object_gets_each_record_in_order_whatever_its_function_takes(form: RecordForm) -> None:
    made = stage(Model(), form)
    made.take_broadcast(pa.concat_tables([rows(*range(1, 5_000)), rows(1, 2)]), no_check)
    made.take_broadcast(rows(5), no_check)
    assert made._function.versions == [*range(1, 5_000), 1, 2, 5]


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (0, DataError, r'process_broadcast\(\): .*ZeroDivisionError.*; the record: {"n":0}'),
        (-1, UserCodeFailed, r"process_broadcast\(\): .*ConnectionError: no server"),
        (-2, DataError, r"returned 'a score' of type str; process_broadcast\(\) puts nothing out, and returns None"),
    ],
)
def test_no_record_is_skipped_because_the_states_would_differ(number: int, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        stage(Model()).take_broadcast(rows(1, number, 2), no_check)


def test_the_example_of_parts_has_every_profile_at_another_parallelism(tmp_path: Path) -> None:
    blocks = OPERATOR_STATE.read_text().split("```python\n")
    (code,) = (block.partition("```")[0] for block in blocks if block.startswith("class Profiles"))
    found: dict[str, Any] = {}
    exec(code, found)

    def subtask(number: int, parallelism: int) -> tuple[Any, StateOfObject]:
        profiles = found["Profiles"]()
        profiles.open(None)
        owner = Owner("f", "operator 'f'", number, parallelism)
        return profiles, StateOfObject(profiles, BROADCAST, owner, has_files=True)

    stored = []
    for number in range(2):
        profiles, state = subtask(number, 2)
        backend = FileBackend(str(tmp_path), f"a1-f-{number}")
        for user in range(10):
            profiles.process_broadcast({"user": user, "country": f"c{user}"})
        state.snapshot(1, SnapshotOrder()).persist(1, backend.writer(1))
        profiles.process_broadcast({"user": 3, "country": "new"})
        stored.append(state.snapshot(2, SnapshotOrder(base_id=1)).persist(2, backend.writer(2)))
    for number in range(3):
        profiles, state = subtask(number, 3)
        state.restore(stored, 2)
        countries = [profiles({"id": 0, "user": user})["country"] for user in range(10)]
        assert countries == [f"c{user}" if user != 3 else "new" for user in range(10)]


def test_an_object_without_the_method_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"has no method process_broadcast\(record\) for the broadcast input"):
        stage(len).take_broadcast(rows(1), no_check)


def test_a_canceled_subtask_takes_nothing_more() -> None:
    def canceled() -> None:
        raise Canceled

    made = stage(Model())
    with pytest.raises(Canceled):
        made.take_broadcast(rows(1), canceled)
    assert made._function.versions == []


def state_of(function: Any, subtask: int, parallelism: int, state: ObjectState = BROADCAST) -> StateOfObject:
    return StateOfObject(function, state, Owner("f", "operator 'f'", subtask, parallelism), has_files=True)


def taken(function: Any, folder: Path, parallelism: int, state: ObjectState = BROADCAST) -> OperatorState:
    writer = FileBackend(str(folder), "a1-v-0").writer(1)
    return state_of(function, 0, parallelism, state).snapshot(1, SnapshotOrder()).persist(1, writer)


def applied(kind: type[Model]) -> Any:
    function = kind()
    for number in (1, 2):
        function.process_broadcast({"n": number})
    return function


@pytest.mark.parametrize("kind", [Model, Whole, Parts])
@pytest.mark.parametrize("now", [(0, 1), (0, 3), (4, 5)])
def test_a_new_subtask_gets_a_copy(tmp_path: Path, kind: type[Model], now: tuple[int, int]) -> None:
    restored = kind()
    state_of(restored, *now).restore([taken(applied(kind), tmp_path, 3)], 1)
    assert restored.total == 150


@pytest.mark.parametrize("now", [(0, 3), (1, 2)])
def test_states_that_may_differ_do_not_become_broadcast_state(tmp_path: Path, now: tuple[int, int]) -> None:
    with pytest.raises(StateUnreadable, match="taken by 3 subtasks without a broadcast input, so their states may"):
        state_of(Whole(), *now).restore([taken(applied(Whole), tmp_path, 3, FIXED)], 1)


def test_the_state_of_a_single_subtask_becomes_that_of_all(tmp_path: Path) -> None:
    restored = Whole()
    state_of(restored, 3, 4).restore([taken(applied(Whole), tmp_path, 1, FIXED)], 1)
    assert restored.total == 150
