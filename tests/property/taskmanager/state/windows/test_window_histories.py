"""Windows and interval joins through late, lost and aborted snapshots, failures and rescales, against naive models.

Each kept checkpoint, restored by one subtask or by several, goes on exactly as the model that keeps every record.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import (
    CheckpointKind,
    CumulatingWindow,
    IntervalJoin,
    JoinSide,
    KeyedAggregate,
    OperatorState,
    SessionWindow,
    SlidingWindow,
    StateBackend,
    TumblingWindow,
)
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.join import join_database, join_heap, join_table
from lockgate_taskmanager.state.join.interval_join import JoinStore
from lockgate_taskmanager.state.join.join_spec import JoinSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.state.windows import pane_state, session_state
from lockgate_taskmanager.state.windows.shape import shape_of
from lockgate_taskmanager.task.program import SnapshotOrder

from tests.join_homes import waiting
from tests.property.taskmanager.state.join import test_interval_join_state as join_models
from tests.property.taskmanager.state.store_world import GROUPS, StoreWorld
from tests.property.taskmanager.state.test_store_histories import BACKENDS, perform
from tests.property.taskmanager.state.windows import test_session_state as session_models
from tests.property.taskmanager.state.windows import test_windowed_state as window_models
from tests.property.taskmanager.state.windows.window_homes import fired as due_in
from tests.property.taskmanager.state.windows.window_homes import rows_of_savepoint, split_up

KINDS = {
    "tumbling": TumblingWindow(10, 3),
    "sliding": SlidingWindow(10, 4),
    "session": SessionWindow(6),
    "cumulating": CumulatingWindow(12, 4, 2),
}
PARTS = (range(3), range(3, 4), range(4, GROUPS))
FAR = 5_000  # where what makes increments worth it waits till the end
BASE = [(f"base{number}", FAR + number % 40) for number in range(80)]
LEFT, RIGHT = JoinSide.LEFT, JoinSide.RIGHT
NUMBERS = {LEFT: "a", RIGHT: "b"}


class TimeWorld(StoreWorld):
    """Stores of windows. The content is a naive model; event time only rises, but for a restart."""

    def __init__(self, choice: StateBackend, make: Callable[[ScratchFolder], Any], model: Any) -> None:
        super().__init__(choice, 2, make)
        self.model = model
        self.content = copy.deepcopy(model)

    @property
    def now(self) -> int:
        """The watermark; 0 before there is one."""
        return max(self.content.watermark, 0)

    def restart(self) -> None:
        super().restart()
        if self.completed.newest is None:
            self.content = copy.deepcopy(self.model)

    def changing(self) -> Any:
        """The model, to be changed: what a snapshot was taken of stays as it was."""
        self.content = copy.deepcopy(self.content)
        return self.content

    def each_restored(self, number: int) -> Iterator[list[Any]]:
        """The stores of a checkpoint: of one subtask, and of three."""
        yield [self.restored(number)]
        yield [self.restored(number, part) for part in PARTS]


class WindowMaker:
    """StoreFactory as StoreWorld knows makers, for one windowed aggregate."""

    def __init__(self, operator: KeyedAggregate, schema: Any, choice: StateBackend, scratch: ScratchFolder) -> None:
        self.operator, self.schema, self.stores = operator, schema, StoreFactory(choice, scratch)

    def fresh(self, _spec: object, _schema: object) -> Any:
        return self.stores.fresh(StoreSpec("count", self.operator, GROUPS, range(GROUPS)), self.schema)

    def restored(self, spec: Any, states: Sequence[OperatorState], number: int) -> Any:
        return self.stores.restored(StoreSpec("count", self.operator, GROUPS, spec.key_groups), states, number)


class WindowWorld(TimeWorld):
    """Of a windowed aggregate."""

    def __init__(self, choice: StateBackend, kind: Any, lateness: int) -> None:
        self.models = session_models if isinstance(kind, SessionWindow) else window_models
        operator = (
            self.models.operator(kind, lateness)
            if self.models is window_models
            else self.models.operator(kind.gap_ms, lateness)
        )
        assert operator.window is not None
        self.shape = shape_of(operator.window)
        model = self.models.Naive(self.shape.size_ms if self.models is session_models else kind, lateness)
        make = lambda scratch: WindowMaker(operator, self.models.SCHEMA, choice, scratch)  # noqa: E731
        super().__init__(choice, make, model)
        self.add([(key, time, 1) for key, time in BASE])

    def merge(self, batch: list[Any]) -> None:
        """Records of (key, time from now on or None, value)."""
        self.add([(key, None if time is None else self.now + time, value) for key, time, value in batch])

    def add(self, records: list[Any]) -> None:
        """The store says of records what the model says."""
        model = self.changing()
        before = model.dropped
        if self.models is session_models:
            merged = self.store.merge(session_models.partial(records, self.shape.size_ms))
            assert session_models.as_pairs(merged.changed) == model.add(records)
        else:
            merged = self.store.merge(window_models.partial(records, self.shape.pane_ms, self.shape.offset_ms))
            assert dict(window_models.as_pairs(merged.changed)) == model.add(records)
        assert merged.dropped == model.dropped - before

    def pass_time(self, by: int) -> None:
        """The watermark goes on."""
        self.require_same([self.store], self.changing(), self.now + by)

    def require_same(self, stores: Sequence[Any], model: Any, watermark: int) -> None:
        """What fires in all stores together is what fires in the model."""
        emitted = sorted((row for store in stores for row in self.models.as_pairs(due_in(store, watermark))), key=repr)
        fired = model.advance(watermark)
        assert emitted == (sorted(fired.items(), key=repr) if isinstance(fired, dict) else fired)

    def check(self) -> None:
        for checkpoint in self.completed.all():
            for stores in self.each_restored(checkpoint.checkpoint_id):
                model = copy.deepcopy(self.contents[checkpoint.checkpoint_id])
                assert {store.clock.now for store in stores} == {model.watermark}
                for watermark in (self.now + 4, 10 * FAR):
                    self.require_same(stores, model, watermark)
                assert sum(map(rows_left, stores)) == 0
                for store in stores:
                    store.close()


class JoinMaker:
    """StoreFactory as StoreWorld knows makers."""

    def __init__(self, operator: IntervalJoin, choice: StateBackend, scratch: ScratchFolder) -> None:
        self.operator, self.stores = operator, StoreFactory(choice, scratch)

    def fresh(self, _spec: object, _schema: object) -> JoinStore:
        store = self.stores.join(JoinSpec("count", self.operator, GROUPS, range(GROUPS)))
        for side, schema in join_models.SCHEMAS.items():
            store.accept(side, schema)
        return store

    def restored(self, spec: Any, states: Sequence[OperatorState], number: int) -> JoinStore:
        store = self.stores.join(JoinSpec("count", self.operator, GROUPS, spec.key_groups))
        store.restore(states, number)
        return store


class JoinWorld(TimeWorld):
    """Of an interval join."""

    def __init__(self, choice: StateBackend, operator: IntervalJoin) -> None:
        make = lambda scratch: JoinMaker(operator, choice, scratch)  # noqa: E731
        super().__init__(choice, make, join_models.Naive(operator))
        self.count = 0
        for side in (LEFT, RIGHT):
            self.add(side, [(f"{side.name}-{key}", time) for key, time in BASE])

    def frozen(self, order: SnapshotOrder) -> tuple[FrozenStore, ...]:
        found: tuple[FrozenStore, ...] = self.store.snapshot(order)
        return found

    def merge(self, side: JoinSide, batch: list[Any]) -> None:
        """Records of (key, time from now on or None)."""
        self.add(side, [(key, None if time is None else self.now + time) for key, time in batch])

    def add(self, side: JoinSide, records: list[Any]) -> None:
        """Each finds the partners that the model has."""
        model = self.changing()
        numbered = [(record, self.count + at) for at, record in enumerate(records)]
        self.count += len(records)
        before, dropped = len(model.records[side]), model.dropped
        model.add(side, numbered)
        merged = self.store.merge(side, join_models.table(side, numbered))
        made = [(row["k"], row["a"], row["b"]) for table in merged.pairs for row in table.to_pylist()]
        other = model.records[RIGHT if side is LEFT else LEFT]
        expected: Counter[Any] = Counter()
        for (key, time), number in model.records[side][before:]:
            for (name, at), partner in other:
                left, right = (time, at) if side is LEFT else (at, time)
                if key is not None and key == name and self.is_near(left, right):
                    expected[(key, number, partner) if side is LEFT else (key, partner, number)] += 1
        assert Counter(made) == expected
        assert merged.dropped == model.dropped - dropped

    def is_near(self, left: int, right: int) -> bool:
        """The condition of the join."""
        operator = self.content.operator
        return bool(left + operator.lower_ms <= right <= left + operator.upper_ms)

    def pass_time(self, by: int) -> None:
        """The watermark goes on."""
        model = self.changing()
        model.watermark = self.now + by
        self.store.advance(model.watermark)

    def check(self) -> None:
        for checkpoint in self.completed.all():
            model = self.contents[checkpoint.checkpoint_id]
            for stores in self.each_restored(checkpoint.checkpoint_id):
                assert sum(map(numbers_in, stores), Counter()) == self.kept(model), "nothing comes back"
                for store in stores:
                    store.close()

    def kept(self, model: Any) -> Counter[Any]:
        """The rows that a partner may still come for."""
        reach = {LEFT: model.operator.upper_ms, RIGHT: -model.operator.lower_ms}
        return Counter(
            (side, key, time, number)
            for side, records in model.records.items()
            for (key, time), number in records
            if key is not None and time + reach[side] > model.watermark
        )


def numbers_in(store: JoinStore) -> Counter[Any]:
    """The rows of a store: side, key, time and number."""
    return Counter(
        (side, row["k"], row["__event_time"], row[NUMBERS[side]])
        for side, table in waiting(store).items()
        for row in table.to_pylist()
    )


def rows_left(store: Any) -> int:
    """How many rows a store of windows has."""
    frozen = store.snapshot(SnapshotOrder(is_savepoint=True))
    state = frozen.persist(1, InlineBackend(1 << 30).writer(1))
    frozen.release()
    return rows_of_savepoint(state)


@contextmanager
def eager(is_eager: bool) -> Iterator[None]:
    """Rows move together whenever they can."""
    with pytest.MonkeyPatch.context() as patch:
        if is_eager:
            for module in (join_heap, session_state, pane_state):
                patch.setattr(module, "_FEW_ROWS", 0)
            patch.setattr(join_heap, "_LEAST_COUNTED_MS", 1)
            for module in (join_heap, join_database):
                patch.setattr(module, "_AT_ONCE", 7)
            patch.setattr(join_database, "_ROWS_A_CLEARING", 3)
            patch.setattr(join_table, "_TAIL_BYTES", 60)
        yield


times = st.one_of(st.none(), st.integers(-12, 25), st.integers(-12, 25))
keys = st.sampled_from(["a", "a", "b", "c", None])
which = st.integers(0, 3)
settling = (
    st.tuples(st.just("pass_time"), st.integers(1, 12)),
    st.tuples(st.just("pass_time"), st.integers(1, 12)),
    st.tuples(st.just("trigger"), st.sampled_from([CheckpointKind.CHECKPOINT] * 4 + [CheckpointKind.SAVEPOINT])),
    st.tuples(st.just("upload"), which),
    st.tuples(st.just("complete"), which, st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("lost"), st.booleans()),
    st.tuples(st.just("abort"), which),
    st.tuples(st.just("restart")),
)
window_rows = st.lists(st.tuples(keys, times, st.integers(-9, 9)), min_size=1, max_size=4)
window_steps = st.one_of(st.tuples(st.just("merge"), window_rows), st.tuples(st.just("merge"), window_rows), *settling)
join_rows = st.lists(st.tuples(keys, times), min_size=1, max_size=4)
join_merge = st.tuples(st.just("merge"), st.sampled_from([LEFT, RIGHT]), join_rows)
join_steps = st.one_of(join_merge, join_merge, *settling)


def play(world: TimeWorld, plan: list[tuple[Any, ...]]) -> None:
    """A plan, and what has to hold in the end and after a failure."""
    try:
        for step in plan:
            perform(world, step)
        world.restart()
        world.pass_time(3)
        perform(world, ("checkpoint", True))
        world.check()
    finally:
        world.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(st.sampled_from([0, 0, 7]), st.booleans(), st.lists(window_steps, max_size=25))
def test_every_kept_checkpoint_of_windows_continues_like_the_model(
    kind: str, backend: str, lateness: int, is_eager: bool, plan: list[tuple[Any, ...]]
) -> None:
    with eager(is_eager), split_up(is_eager):
        play(WindowWorld(BACKENDS[backend], KINDS[kind], lateness), plan)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=15, deadline=None)
@given(st.sampled_from([(0, 0), (-5, 8), (3, 9), (-9, -2)]), st.booleans(), st.lists(join_steps, max_size=25))
def test_every_kept_checkpoint_of_a_join_continues_like_the_model(
    backend: str, bounds: tuple[int, int], is_eager: bool, plan: list[tuple[Any, ...]]
) -> None:
    with eager(is_eager):
        play(JoinWorld(BACKENDS[backend], IntervalJoin(("k",), ("k",), "at", "at", *bounds)), plan)
