"""The state of an author's object: what a snapshot takes at the barrier, and what a restored object is given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_proto.messages import ObjectForm, ObjectState, OperatorState, SubtaskState
from lockgate_taskmanager.runtime.snapshot_figures import figures_of
from lockgate_taskmanager.spark.functions import object_state
from lockgate_taskmanager.spark.functions.object_restore import Owner
from lockgate_taskmanager.spark.functions.object_state import StateOfObject
from lockgate_taskmanager.spark.snapshot import ChainSnapshot
from lockgate_taskmanager.state.backend import Backend, FileBackend, InlineBackend
from lockgate_taskmanager.state.parts.stored_part import read_index
from lockgate_taskmanager.task.effects import Acknowledge
from lockgate_taskmanager.task.program import SnapshotOrder, SnapshotTooLarge, StateRefused, StateUnreadable

FIXED, SPLIT, UNION = (
    ObjectState.OBJECT_STATE_FIXED,
    ObjectState.OBJECT_STATE_SPLIT,
    ObjectState.OBJECT_STATE_UNION,
)


class Object:
    """Its state is one value."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def snapshot_state(self) -> Any:
        return self.value

    def restore_state(self, state: Any) -> None:
        self.value = state


class Fields:
    """Its state are two fields."""

    state_fields = ("count", "seen")

    def __init__(self) -> None:
        self.count, self.seen, self.other = 0, set[str](), 0


def joined(shares: list[list[Any]]) -> list[Any]:
    return [item for share in shares for item in share]


def state_of(
    function: Any, state: ObjectState = FIXED, subtask: int = 0, parallelism: int = 1, operator_id: str = "f"
) -> StateOfObject:
    owner = Owner(operator_id, f"operator '{operator_id}'", subtask, parallelism)
    return StateOfObject(function, state, owner, has_files=True)


def taken(
    function: Any,
    backend: Backend,
    state: ObjectState = FIXED,
    subtask: int = 0,
    parallelism: int = 1,
    checkpoint_id: int = 1,
) -> OperatorState:
    frozen = state_of(function, state, subtask, parallelism).snapshot(checkpoint_id, SnapshotOrder())
    return frozen.persist(checkpoint_id, backend.writer(checkpoint_id))


@pytest.fixture(params=["files", "inline"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return FileBackend(str(tmp_path), "a1-v-0") if request.param == "files" else InlineBackend(16 << 20)


@pytest.mark.parametrize("value", [7, None, {"a": [1, {2}]}, "x" * 5_000, [], np.arange(3)])
def test_a_value_comes_back_equal(backend: Backend, value: Any) -> None:
    restored = Object()
    state_of(restored).restore([taken(Object(value), backend)], 1)
    assert np.array_equal(restored.value, value) if isinstance(value, np.ndarray) else restored.value == value


def test_fields_come_back_and_nothing_else(backend: Backend) -> None:
    before, after = Fields(), Fields()
    before.count, before.seen, before.other = 3, {"a"}, 9
    state_of(after).restore([taken(before, backend)], 1)
    assert (after.count, after.seen, after.other) == (3, {"a"}, 0)


@pytest.mark.parametrize("value", [{"a": 1}, [1], {1}, np.zeros(2), {"a": [1]}, [[1]], bytearray(b"a")])
def test_a_snapshot_has_the_state_of_its_barrier_whatever_the_object_does_while_it_is_stored(
    backend: Backend, value: Any
) -> None:
    value = deepcopy(value)
    function, restored = Object(value), Object()
    frozen = state_of(function).snapshot(1, SnapshotOrder())
    expected = repr(value)
    match value:
        case {"a": [*inner]}:
            inner.append(2)
            value["a"].append(2)
        case dict():
            value["b"] = 2
        case set():
            value.add(2)
        case np.ndarray():
            value[0] = 5
        case [list() as inner]:
            inner.append(2)
        case bytearray():
            value[0] = 9
        case _:
            value.append(2)
    assert repr(value) != expected
    state_of(restored).restore([frozen.persist(1, backend.writer(1))], 1)
    assert repr(restored.value) == expected


@pytest.mark.parametrize("keep", [lambda table: table, lambda table: [table], lambda table: {"a": table}])
def test_arrow_data_may_lie_in_memory_that_the_object_changes(
    backend: Backend, keep: Callable[[pa.Table], Any]
) -> None:
    numbers = np.arange(3)
    frozen = state_of(Object(keep(pa.table({"n": pa.array(numbers)})))).snapshot(1, SnapshotOrder())
    numbers[:] = 9
    restored = Object()
    state_of(restored).restore([frozen.persist(1, backend.writer(1))], 1)
    assert restored.value == keep(pa.table({"n": [0, 1, 2]}))


def test_a_function_in_a_field_is_its_value_and_is_not_called(backend: Backend) -> None:
    before, after = Fields(), Fields()
    before.count = lambda: 7  # type: ignore[assignment]
    state_of(after).restore([taken(before, backend)], 1)
    assert after.count() == 7  # type: ignore[operator]


def test_a_function_makes_the_state_in_the_background(backend: Backend) -> None:
    threads: list[int] = []

    def made(copy: tuple[int, ...]) -> list[int]:
        threads.append(threading.get_ident())
        return list(copy)

    function, restored = Object(partial(made, (1, 2))), Object()
    frozen = state_of(function).snapshot(1, SnapshotOrder())
    assert threads == []
    found: list[OperatorState] = []
    storing = threading.Thread(target=lambda: found.append(frozen.persist(1, backend.writer(1))))
    storing.start()
    storing.join(30)
    state_of(restored).restore(found, 1)
    assert restored.value == [1, 2]
    assert threads == [storing.ident]


def test_a_small_state_has_no_file_of_its_own(tmp_path: Path) -> None:
    state = taken(Object(5), FileBackend(str(tmp_path), "a1-v-0"))
    assert state.handle is not None
    assert [state.handle.path, *(file.path for file in state.files)] == ["", ""]
    assert list(tmp_path.rglob("*.state")) == []


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 4), (4, 1), (2, 2)])
def test_split_divides_the_items_of_all_and_keeps_their_order(backend: Backend, before: int, after: int) -> None:
    items = [[f"{subtask}-{number}" for number in range(10 * subtask + 3)] for subtask in range(before)]
    states = [taken(Object(mine), backend, SPLIT, subtask, before) for subtask, mine in enumerate(items)]
    found = []
    for subtask in range(after):
        restored = Object()
        given = [states[subtask]] if before == after else states
        state_of(restored, SPLIT, subtask, after).restore(given, 1)
        found.append(restored.value)
    assert joined(found) == joined(items)
    if before != after:
        assert max(map(len, found)) - min(map(len, found)) <= 1
    else:
        assert found == items


def test_split_divides_within_blocks_of_many_items(backend: Backend) -> None:
    items = [bytes([number % 251]) * 10_000 for number in range(700)]
    state = taken(Object(items), backend, SPLIT)
    found = []
    for subtask in range(3):
        restored = Object()
        state_of(restored, SPLIT, subtask, 3).restore([state], 1)
        found.append(restored.value)
    assert joined(found) == items
    assert [len(share) for share in found] == [233, 233, 234]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_union_gives_each_the_items_of_all_at_every_restore(backend: Backend, after: int) -> None:
    states = [taken(Object([f"{subtask}"]), backend, UNION, subtask, 2) for subtask in range(2)]
    for subtask in range(after):
        restored = Object()
        state_of(restored, UNION, subtask, after).restore(states, 1)
        assert restored.value == ["0", "1"]


@pytest.mark.parametrize("state", [SPLIT, UNION])
def test_an_object_that_gets_on_rescale_restores_its_own_state_once_more(backend: Backend, state: ObjectState) -> None:
    states = [taken(Object([subtask]), backend, FIXED, subtask, 2) for subtask in range(2)]
    for subtask in range(2):
        restored = Object()
        state_of(restored, state, subtask, 2).restore(states if state is UNION else [states[subtask]], 1)
        assert restored.value == [subtask]


def test_state_without_on_rescale_is_not_given_to_another_number_of_subtasks(backend: Backend) -> None:
    states = [taken(Object(subtask), backend, FIXED, subtask, 2) for subtask in range(2)]
    with pytest.raises(
        StateUnreadable, match="was taken by 2 subtasks without on_rescale, and cannot be divided among 3"
    ):
        state_of(Object(), SPLIT, 0, 3).restore(states, 1)


class Locked(Object):
    """Its items are an open lock."""

    def snapshot_state(self) -> Any:
        return {"lock": threading.Lock()}


class Failing(Object):
    """Fails when it is asked."""

    def snapshot_state(self) -> Any:
        raise KeyError("total")


@pytest.mark.parametrize(
    ("function", "state", "text"),
    [
        (Locked(), FIXED, "operator 'f': its state cannot be pickled (TypeError: cannot pickle '_thread.lock' object)"),
        (Failing(), FIXED, "operator 'f': snapshot_state() of "),
        (Object(5), SPLIT, "operator 'f': snapshot_state() returned a int; an object with on_rescale returns a list"),
        (Object([1, threading.Lock()]), SPLIT, "one of the items 1 to 1 of its state cannot be pickled"),
        (Object(partial(lambda: 1 // 0)), FIXED, "operator 'f': its state: the Python function raised ZeroDivision"),
    ],
)
def test_a_state_that_cannot_be_taken_is_one_sentence(
    backend: Backend, function: Any, state: ObjectState, text: str
) -> None:
    with pytest.raises(StateRefused) as caught:
        taken(function, backend, state)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_field_that_does_not_exist_or_cannot_be_pickled_is_named(backend: Backend) -> None:
    function = Fields()
    function.seen = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(StateRefused, match="field 'seen' of its state cannot be pickled"):
        taken(function, backend)
    del function.seen
    with pytest.raises(StateRefused, match="its object has no field 'seen', which is one of its state_fields"):
        taken(function, backend)


class Fewer(Fields):
    """The same operator after a change of its code."""

    state_fields = ("count",)


class More(Fields):
    """And after another one."""

    state_fields = ("count", "seen", "other")


def test_a_field_that_is_not_named_any_more_is_not_dropped(backend: Backend) -> None:
    state = taken(Fields(), backend)
    with pytest.raises(StateUnreadable, match=r"\.Fields\) has the field 'seen', which Fewer does not name"):
        state_of(Fewer()).restore([state], 1)
    restored = More()
    restored.other = 4
    state_of(restored).restore([state], 1)
    assert restored.other == 4


def test_fields_are_not_given_to_an_object_with_methods_nor_the_other_way_round(backend: Backend) -> None:
    with pytest.raises(StateUnreadable, match="has state_fields, and its object has none"):
        state_of(Object()).restore([taken(Fields(), backend)], 1)
    with pytest.raises(StateUnreadable, match="has no state_fields, and its object has some"):
        state_of(Fields()).restore([taken(Object(1), backend)], 1)


class Named(Object):
    """Its state are parts by name."""

    def changes_since_last_checkpoint(self) -> Any:
        return {}


@pytest.mark.parametrize(
    ("before", "was", "after", "now", "text"),
    [
        (Object([1]), SPLIT, Named(), SPLIT, "is a list, and an object with changes_since_last_checkpoint() is"),
        (Object([1]), FIXED, Named(), FIXED, "is a list, and an object with changes_since_last_checkpoint() is"),
        (
            Object({1: 2}),
            FIXED,
            Named(),
            FIXED,
            "is a dict, and an object with changes_since_last_checkpoint() is",
        ),
        (
            Named({"a": 1}),
            SPLIT,
            Object(),
            SPLIT,
            "is a dict, and an object with on_rescale is restored from a list",
        ),
        (Object(7), FIXED, Object(), SPLIT, "is a int, and an object with on_rescale is restored from a list"),
    ],
)
def test_a_state_of_another_kind_is_not_given_to_the_object(
    backend: Backend, before: Object, was: ObjectState, after: Object, now: ObjectState, text: str
) -> None:
    state = taken(before, backend, was)
    with pytest.raises(StateUnreadable) as raised:
        state_of(after, now).restore([state], 1)
    assert text in str(raised.value)
    assert str(raised.value).startswith("operator 'f': the snapshot of its object (")
    assert after.value is None


def test_an_object_that_names_its_parts_now_takes_a_dict_from_before(backend: Backend) -> None:
    after = Named()
    state_of(after).restore([taken(Object({"a": 1}), backend)], 1)
    assert after.value == {"a": 1}


class Limited(Object):
    """May have little."""

    max_state_bytes = 1_000


def test_a_state_above_its_own_limit_is_refused(backend: Backend) -> None:
    taken(Limited("x" * 900), backend)
    with pytest.raises(StateRefused, match=r"its state has 1,0\d\d bytes or more, and its max_state_bytes is 1,000"):
        taken(Limited("x" * 1_000), backend)


def test_the_snapshot_has_the_size_of_the_state(backend: Backend) -> None:
    for size in (100, 1 << 20):
        state = taken(Object("x" * size), backend)
        ((name, found),) = figures_of(Acknowledge(1, SubtaskState("v", 0, (state,)), 0, 0, 0)).state_bytes
        assert name == "f"
        assert size < found < size + 1_000


def test_a_whole_snapshot_that_does_not_fit_names_its_operator() -> None:
    frozen = state_of(Object("x" * 20_000)).snapshot(3, SnapshotOrder())
    small = state_of(Object("x" * 8_000), operator_id="g").snapshot(3, SnapshotOrder())
    snapshot = ChainSnapshot(3, "v", 0, InlineBackend(25_000), (), None, (frozen, small), ())
    with pytest.raises(
        SnapshotTooLarge, match=r"checkpoint 3: the state of operator 'f' takes 20,\d\d\d bytes or more"
    ):
        snapshot.persist()


def test_a_damaged_part_is_never_unpickled(tmp_path: Path) -> None:
    state = taken(Object(bytes(5_000)), FileBackend(str(tmp_path), "a1-v-0"))
    (file,) = tmp_path.rglob("*parts*.state")
    data = bytearray(file.read_bytes())
    data[2_000] ^= 1
    file.write_bytes(data)
    with pytest.raises(StateUnreadable, match="corrupt"):
        state_of(Object()).restore([state], 1)


class Linked:
    """Its fields refer to each other: two are one list, and the third has it inside."""

    state_fields = ("count", "recent", "current", "open_ones", "weights")

    def __init__(self) -> None:
        self.count = 7
        self.recent = self.current = [1, 2]
        self.open_ones: dict[str, Any] = {"a": self.recent, "b": [np.zeros(2)]}
        self.weights = self.open_ones["b"][0]


class LinkedPlain(Linked):
    """Without the one that has to be pickled at once."""

    state_fields = ("count", "recent", "current")


@pytest.mark.parametrize("kind", [Linked, LinkedPlain])
def test_what_is_one_object_in_several_fields_still_is_after_a_restore(backend: Backend, kind: type[Linked]) -> None:
    before, after = kind(), kind()
    before.recent.append(3)
    frozen = state_of(before).snapshot(1, SnapshotOrder())
    before.recent.append(4)  # after the barrier
    before.weights[0] = 5
    state_of(after).restore([frozen.persist(1, backend.writer(1))], 1)
    assert after.recent == [1, 2, 3]
    assert after.current is after.recent
    if kind is Linked:
        assert after.open_ones["a"] is after.recent
        assert after.open_ones["b"][0] is after.weights
        assert after.weights.tolist() == [0, 0]
    again = kind()
    state_of(again).restore([taken(after, backend)], 1)
    assert again.current is again.recent


def test_a_field_that_nothing_else_refers_to_is_still_pickled_in_the_background(backend: Backend) -> None:
    function = Linked()
    function.recent, function.current, function.weights = [1], [2], np.zeros(1)
    frozen = state_of(function).snapshot(1, SnapshotOrder())
    index, parts = read_index(frozen.persist(1, backend.writer(1)))
    assert index.form is ObjectForm.OBJECT_FIELDS
    assert sorted(parts) == sorted(Linked.state_fields)


def test_fields_of_a_snapshot_with_a_part_for_each_are_restored(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_state, "may_be_shared", lambda *_: False)  # as it was written before
    state, after = taken(Linked(), backend), Linked()
    after.recent = []
    state_of(after).restore([state], 1)
    assert (after.count, after.recent, after.open_ones["a"]) == (7, [1, 2], [1, 2])


def test_the_field_that_cannot_be_pickled_is_named_among_several() -> None:
    function = Linked()
    function.open_ones["lock"] = threading.Lock()
    with pytest.raises(StateRefused, match="field 'open_ones' of its state cannot be pickled"):
        state_of(function).snapshot(1, SnapshotOrder())
