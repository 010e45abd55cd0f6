"""Process functions against a naive model of one dict for each key: records, timers, expiry, snapshots and restores."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import KeyedProcess, Operator
from lockgate_taskmanager.spark.keyed import ipc_batches, runner
from lockgate_taskmanager.spark.keyed.ipc_batches import SCHEMA
from lockgate_taskmanager.spark.keyed.process import ProcessPlan, ProcessStore
from lockgate_taskmanager.spark.leaf import LeafSpec
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format import key_payload
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.rows import row_database, row_heap, row_store
from lockgate_taskmanager.state.rows.row_store import RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK
from pyspark import cloudpickle

from lockgate import ListState, MapState, ProcessFunction, ValueState
from lockgate.pipeline.states import declared_states
from tests.property.taskmanager.state.store_world import GROUPS, hash_of
from tests.property.taskmanager.state.test_store_histories import BACKENDS

pytestmark = pytest.mark.spark

TTL_MS = 40
TYPES = {"BIGINT": pa.int64(), "STRING": pa.string()}
RECORDS = pa.schema([("k", pa.string()), ("op", pa.string()), ("n", pa.int64()), (HASH, pa.int64())])
RESULT = pa.schema([("k", pa.string()), ("seen", pa.string())])
SPEC = RowSpec("process", "process", ("k",), GROUPS, range(GROUPS))
Record = tuple[str | None, str, int]
Out = dict[str | None, list[str]]


class Scripted(ProcessFunction):
    """Does what its records say, and tells all it sees."""

    value = ValueState("BIGINT")
    listed = ListState("BIGINT")
    mapped = MapState("BIGINT", "STRING")
    brief = ValueState("BIGINT", ttl=TTL_MS)
    fading = ListState("BIGINT", ttl=TTL_MS)
    passing = MapState("BIGINT", "BIGINT", ttl=f"{TTL_MS} ms")

    def process(self, context: Any, row: Any) -> Iterator[Any]:
        act(row["op"], row["n"], self, context.timers)
        yield context.key, f"{row['op']} {row['n']}: {self.view(context)}"

    def on_timer(self, context: Any, timer: Any) -> Any:
        follow(timer.is_event_time, timer.time_ms, context.timers)
        return {"k": context.key, "seen": f"{timer.is_event_time} {timer.time_ms}: {self.view(context)}"}

    def view(self, context: Any) -> str:
        plain = (self.value.get(), list(self.listed), self.mapped.items())
        over = (self.brief.get(), self.fading.get(), self.passing.items())
        return f"{plain} {over} {context.watermark} {context.now_ms}"


def act(op: str, n: int, state: Any, timers: Any) -> None:
    """What a record of the script does to state and timers, of the function or of the model."""
    if op == "value":
        state.value.set(n)
        state.brief.set(n)
    elif op == "add":
        state.listed.append(n)
        state.fading.append(n)
    elif op == "map":
        state.mapped[n % 3] = str(n)
        state.passing[n % 3] = n
    elif op == "clear":
        state.value.clear()
        state.listed.clear()
        for key in state.mapped.keys():  # noqa: SIM118  both the handle and the model have it
            del state.mapped[key]
    elif op == "event":
        timers.register_event_time(n)
    elif op == "wall":
        timers.register_processing_time(n)
    elif op == "delete":
        timers.delete_event_time(n)
        timers.delete_processing_time(n)


def follow(is_event: bool, time_ms: int, timers: Any) -> None:
    """Timers set by timers: some later, some earlier, which have to wait for the next visit."""
    register = timers.register_event_time if is_event else timers.register_processing_time
    if time_ms % 5 == 0:
        register(time_ms + 7)
    elif time_ms % 5 == 2:
        register(time_ms - 1)
    elif time_ms % 5 == 1 and time_ms % 2:
        timers.delete_processing_time(time_ms + 3)


class ModelState:
    """Entries with the time at which they are over."""

    def __init__(self, now: int, ttl: int) -> None:
        self.now, self.ttl, self.entries = now, ttl, {}

    def drop(self, now: int) -> None:
        self.now = now
        self.entries = {key: entry for key, entry in self.entries.items() if not self.ttl or entry[1] + self.ttl > now}

    def set(self, value: Any) -> None:
        self.entries = {0: (value, self.now)}

    def append(self, value: Any) -> None:
        self.entries[max(self.entries, default=0) + 1] = (value, self.now)

    def clear(self) -> None:
        self.entries = {}

    def get(self) -> Any:
        return self.entries.get(0, (None,))[0]

    def values(self) -> list[Any]:
        return [value for value, _ in self.entries.values()]

    def items(self) -> list[Any]:
        return [(key, value) for key, (value, _) in self.entries.items()]

    def keys(self) -> list[Any]:
        return list(self.entries)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries[key] = (value, self.now)

    def __delitem__(self, key: Any) -> None:
        del self.entries[key]


class ModelKey:
    """One key. Also what stands for its timers."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.event: set[int] = set()
        self.wall: set[int] = set()
        self.value, self.listed, self.mapped = (ModelState(0, 0) for _ in range(3))
        self.brief, self.fading, self.passing = (ModelState(0, TTL_MS) for _ in range(3))
        self.register_event_time, self.delete_event_time = self.event.add, self.event.discard
        self.register_processing_time, self.delete_processing_time = self.wall.add, self.wall.discard

    def visit(self, records: list[Record], watermark: int, now: int) -> list[str]:
        lines = []
        for item in (self.value, self.listed, self.mapped, self.brief, self.fading, self.passing):
            item.drop(now)
        for _, op, n in records:
            act(op, n, self, self)
            lines.append(f"{op} {n}: {self.view(watermark, now)}")
        for is_event, times, bound in ((True, self.event, watermark), (False, self.wall, now)):
            last = -(1 << 70)
            known = set(times)  # at the end of the input, only these
            while due := [t for t in times if last < t <= bound and (bound != MAX_WATERMARK or t in known)]:
                last = min(due)
                times.discard(last)
                follow(is_event, last, self)
                lines.append(f"{is_event} {last}: {self.view(watermark, now)}")
        return lines

    def view(self, watermark: int, now: int) -> str:
        plain = (self.value.get(), self.listed.values(), self.mapped.items())
        over = (self.brief.get(), self.fading.values(), self.passing.items())
        return f"{plain} {over} {None if watermark == -(1 << 63) else watermark} {now}"


class Bench:
    """Stands for a workbench: its plans call their function here. Only what Spark does in between is left out."""

    def plan(self, name: str, spec: LeafSpec, build: Any, where: str, about: object = None) -> Bench:  # noqa: ARG002
        made = Bench()
        made.call = build(made)
        return made

    call: Any = None
    columns = SCHEMA.names

    def mapInArrow(self, call: Any, schema: Any) -> Any:  # noqa: ARG002
        return call

    def run(self, rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches(self.call(iter(rows.to_batches(max_chunksize=2))), SCHEMA)


class InProcess(ProcessPlan):
    """The plan without Spark."""

    def __init__(self) -> None:
        self._kind = KeyedProcess(("k",), cloudpickle.dumps(Scripted()))
        self._operator = Operator(id="process", kind=self._kind)
        self._bench: Any = Bench()
        self._where = "operator 'process'"
        self.schema = RESULT
        self.states = tuple(
            runner.Declared(
                declared_state.name,
                ("", runner.VALUE, runner.LIST, runner.MAP)[declared_state.shape.value],
                TYPES[declared_state.type],
                TYPES.get(declared_state.key_type),
                declared_state.ttl_ms,
            )
            for declared_state in declared_states(Scripted())
        )


@pytest.fixture(autouse=True, scope="module")
def short_batches() -> Iterator[None]:
    """So that keys and records go over several batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ipc_batches, "ROWS_AT_ONCE", 3)
        patch.setattr(ipc_batches, "_BYTES_AT_ONCE", 400)
        patch.setattr(runner, "ROWS_AT_ONCE", 2)
        yield


class World:
    """A store, attempt after attempt, beside the model."""

    def __init__(self, backend: str, patch: pytest.MonkeyPatch, failures: int = 0) -> None:
        """failures: how many firings fail between two portions."""
        self.failures = failures
        self.folder = Path(tempfile.mkdtemp(prefix="lockgate-process-world-"))
        self.choice = choice = BACKENDS[backend.removesuffix(APART)]
        if backend.endswith(APART):
            patch.setattr(key_payload, "LARGEST_WHOLE", 0)
        self.rows = StoreFactory(choice, ScratchFolder(self.folder / "work", "state-"))
        self.store = ProcessStore(SPEC, self.rows.fresh(SPEC, RECORDS), InProcess())
        self.model: dict[str | None, ModelKey] = {}
        self.now, self.watermark, self.number, self.base = 1000, -(1 << 63), 0, 0
        self.tick(0)

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def batch(self, records: list[Record]) -> None:
        table = pa.table([*zip(*records, strict=True), [hash_of(record[0]) for record in records]], schema=RECORDS)
        merged = self.store.merge(table)
        assert merged.records == len(records)
        wanted: Out = {}
        for key in {record[0] for record in records}:
            model = self.model.setdefault(key, ModelKey(key))
            wanted[key] = model.visit([record for record in records if record[0] == key], self.watermark, self.now)
        assert seen(merged.changed) == wanted

    def tick(self, later: int) -> None:
        self.now += later
        fired = self.store.tick(self.now)
        self.compare(fired)

    def advance(self, further: int) -> None:
        self.watermark = max(self.watermark, 1000) + further
        self.compare(self.store.advance(self.watermark))

    def end(self) -> None:
        self.watermark = MAX_WATERMARK
        self.compare(self.store.advance(MAX_WATERMARK))

    def whole(self, first: pa.Table | None) -> pa.Table | None:
        """A firing portion by portion; some fail in the middle, and the next attempt goes on."""
        portions = [] if first is None else [first]
        while self.store.has_more:
            if self.failures and self.store.is_settled and self.watermark != MAX_WATERMARK:
                self.failures -= 1
                self.reopen(is_savepoint=False)
                if (fired := self.store.tick(self.now)) is not None:
                    portions.append(fired)
            else:
                portions.append(self.store.go_on())
        return pa.concat_tables(portions) if portions else None

    def compare(self, first: pa.Table | None) -> None:
        failures = self.failures
        fired = self.whole(first)
        found = seen(fired) if fired is not None else {}
        wanted = self.visits()
        if self.failures < failures:  # a timer that a timer has set for the past goes off when its key is visited next
            while (later := self.whole(self.store.tick(self.now))) is not None:
                extend(found, seen(later))
            while more := self.visits():
                extend(wanted, more)
        assert found == wanted

    def visits(self) -> Out:
        """What the model says of all keys that are due."""
        due = [
            model_key
            for model_key in self.model.values()
            if any(t <= self.watermark for t in model_key.event) or any(t <= self.now for t in model_key.wall)
        ]
        return {model_key.key: model_key.visit([], self.watermark, self.now) for model_key in due}

    def restart(self, is_savepoint: bool) -> None:
        """A snapshot, and the next attempt starts from it."""
        self.reopen(is_savepoint)
        self.tick(0)

    def reopen(self, is_savepoint: bool) -> None:
        """The same; what is due is not put out yet."""
        self.number += 1
        frozen = self.store.snapshot(SnapshotOrder(self.base, is_savepoint))
        state = frozen.persist(
            self.number, make_backend(self.choice, str(self.folder), f"a{self.number}").writer(self.number)
        )
        frozen.release()
        self.store.close()
        rows = self.rows.restored(SPEC, (state,), self.number)
        self.base = 0 if is_savepoint else self.number
        self.store = ProcessStore(SPEC, rows, InProcess())


def extend(out: Out, more: Out) -> None:
    """Adds what is reported later, key by key."""
    for key, some in more.items():
        out[key] = [*out.get(key, []), *some]


def seen(table: pa.Table) -> Out:
    found: Out = defaultdict(list)
    for row in table.to_pylist():
        found[row["k"]].append(row["seen"])
    return dict(found)


record = st.tuples(
    st.sampled_from([None, "a", "aa"]),
    st.sampled_from(["value", "add", "add", "map", "map", "clear", "event", "wall", "delete"]),
    st.integers(990, 1200),
)
steps = st.one_of(
    st.tuples(st.just("batch"), st.lists(record, min_size=1, max_size=8)),
    st.tuples(st.just("batch"), st.lists(record, min_size=1, max_size=8)),
    st.tuples(st.just("tick"), st.integers(0, 60)),
    st.tuples(st.just("advance"), st.integers(0, 60)),
    st.tuples(st.just("restart"), st.booleans()),
)
DUE_TOGETHER = ("batch", [(key, kind, 1000) for key in ("a", "aa", None) for kind in ("event", "wall")])
APART = ", all elements apart"
CHOSEN = ("memory", "filesystem, incremental", "rocksdb", f"rocksdb{APART}")


ALL_SHAPES = ("batch", [("a", "value", 1000), ("a", "add", 1000), ("a", "map", 1000)])
ADD_LATER = ("batch", [("a", "add", 1001), ("a", "map", 1001), ("b", "event", 1502), ("b", "wall", 1500)])


@pytest.mark.parametrize("backend", CHOSEN)
@settings(max_examples=40, deadline=None)
@example([ALL_SHAPES, ("tick", TTL_MS - 1), ADD_LATER, ("tick", 1), ADD_LATER, ("restart", False), ADD_LATER], True)
@example([ADD_LATER, ("restart", True), ("advance", 502), ("restart", False), ("tick", 500), ADD_LATER], False)
@given(st.lists(steps, max_size=20), st.booleans())
def test_a_function_sees_the_history_of_its_keys(backend: str, plan: list[tuple[Any, ...]], ends: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = World(backend, patch)
        try:
            for name, *given_ in plan:
                getattr(world, name)(*given_)
            if ends:
                world.end()
        finally:
            world.close()


@pytest.mark.parametrize("backend", CHOSEN)
@settings(max_examples=40, deadline=None)
@example([DUE_TOGETHER, ("advance", 600), ("tick", 600)], 2)
@given(st.lists(steps, max_size=20), st.integers(0, 3))
def test_a_firing_that_fails_between_two_keys_visits_each_once(
    backend: str, plan: list[tuple[Any, ...]], failures: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (row_store, row_heap, row_database):
            patch.setattr(module, "KEYS_AT_ONCE", 1)
        world = World(backend, patch, failures)
        try:
            for name, *given_ in plan:
                getattr(world, name)(*given_)
            assert world.failures == 0 or DUE_TOGETHER not in plan[:1]
        finally:
            world.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rescale_takes_no_key_back_in_event_time(backend: str) -> None:
    """Keys of a subtask that was further on see its watermark until the one that holds them now has passed it."""
    with tempfile.TemporaryDirectory(prefix="lockgate-process-rescale-") as name:
        choice = BACKENDS[backend]
        folder, halves = Path(name), (range(GROUPS // 2), range(GROUPS // 2, GROUPS))
        rows = StoreFactory(choice, ScratchFolder(folder / "work", "state-"))
        half_of = {key: int(hash_of(key) % GROUPS in halves[1]) for key in "abcdefgh"}
        assert set(half_of.values()) == {0, 1}

        def merged(store: ProcessStore, op: str, n: int, keys: Any) -> Out:
            records = [(key, op, n, hash_of(key)) for key in keys]
            return seen(store.merge(pa.table([*zip(*records, strict=True)], schema=RECORDS)).changed)

        states = []
        for number, (owned, watermark) in enumerate(zip(halves, (1000, 20), strict=True)):
            spec = replace(SPEC, key_groups=owned)
            store = ProcessStore(spec, rows.fresh(spec, RECORDS), InProcess())
            merged(store, "event", 503, [key for key, half in half_of.items() if half == number])
            store.advance(watermark)
            frozen = store.snapshot(SnapshotOrder())
            states.append(frozen.persist(1, make_backend(choice, str(folder), f"s{number}").writer(1)))
            store.close()
        for attempt in range(2):  # of both; then of the one, which had not caught up
            store = ProcessStore(SPEC, rows.restored(SPEC, states, 1), InProcess())
            for key, lines in merged(store, "value", 1, half_of).items():
                assert lines[0].split()[-2] == ("20" if half_of[key] else "1000")
            frozen = store.snapshot(SnapshotOrder())
            states = [frozen.persist(2 + attempt, make_backend(choice, str(folder), f"n{attempt}").writer(2 + attempt))]
            if not attempt:
                store.close()
        fired = seen(store.advance(600))
        assert set(fired) == {key for key, half in half_of.items() if half}, "those of the others have fired"
        for key, lines in merged(store, "event", 703, half_of).items():
            assert lines[0].split()[-2] == ("600" if half_of[key] else "1000")
            assert len(lines) == (1 if half_of[key] else 2), "a timer that is due already for these fires at once"
        assert all(lines[0].split()[-2] == "1000" for lines in seen(store.advance(1000)).values())
        store.close()
