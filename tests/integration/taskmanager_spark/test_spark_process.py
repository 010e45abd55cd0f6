"""Process functions and deduplication on real Spark, restored in the middle, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    AttemptId,
    FilesystemBackend,
    JobGraph,
    MemoryBackend,
    RocksdbBackend,
    StateBackend,
    SubtaskId,
    SubtaskState,
)
from lockgate_taskmanager.spark.keyed.shipped import HELD
from lockgate_taskmanager.task.program import DataError, ProgramContext, StateUnreadable, UserError

from lockgate import Job as Pipeline
from lockgate import ListState, MapState, ProcessFunction, ValueState

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
BACKENDS = {
    "memory": StateBackend(MemoryBackend()),
    "incremental": StateBackend(FilesystemBackend(), full_every=3),
    "diffs": StateBackend(FilesystemBackend(), full_every=10, binary_diff=True),
    "rocksdb": StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
}


class EmitIfGreater(ProcessFunction):
    last = ValueState("BIGINT")

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        if not self.last.exists() or row["value"] > self.last.get():
            self.last.set(row["value"])
            yield row


def numbers(folder: Path, files: int = 4, rows: int = 1000) -> dict[str, list[int]]:
    """Files of values, each key in one of them so that its order is that of the file; what is in them."""
    emitted: dict[str, list[int]] = defaultdict(list)
    folder.mkdir()
    for number in range(files):
        lines = []
        for row in range(rows):
            key, value = f"k{number}-{row % 37}", (row * 7919) % 1009 + row // 4
            emitted[key].append(value)
            lines.append(json.dumps({"key": key, "value": value}))
        (folder / f"{number}.json").write_text("\n".join(lines) + "\n")
    return emitted


def graph_of(job: Pipeline, backend: StateBackend | None = None) -> JobGraph:
    return replace(job.graph(), state_backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_emit_if_greater_is_exact_across_attempts(job: Job, tmp_path: Path, backend: str) -> None:
    emitted = numbers(tmp_path / "in")
    pipeline = Pipeline("greater", parallelism=2)
    records = pipeline.read_json(tmp_path / "in", schema="key STRING, value BIGINT")
    greater = records.key_by("key").process(EmitIfGreater(), schema="key STRING, value BIGINT")
    greater.write_json(tmp_path / "out")
    run = job(graph_of(pipeline, BACKENDS[backend]))
    source = run.graph.vertices[0].id
    for _ in range(2):
        run.batch(source, 0)
        run.batch(source, 1)
    kept = run.checkpoint(1)
    run.batch(source, 1)
    run.close()
    run.start(kept, 1)
    run.batch(source, 0)
    kept = run.checkpoint(3, base_id=1)
    run.close()
    run.start(kept, 3)
    run.to_end()
    run.checkpoint(4)
    found: dict[str, list[int]] = defaultdict(list)
    for path in (tmp_path / "out").glob("part-*"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["key"]].append(row["value"])
    wanted = {}
    for key, values in emitted.items():
        best: list[int] = []
        for value in values:
            if not best or value > best[-1]:
                best.append(value)
        wanted[key] = best
    assert {key: sorted(values) for key, values in found.items()} == wanted
    run.close()


class KeyOf(ProcessFunction):
    def process(self, context: Any, row: dict[str, Any]) -> Any:
        return {"key": context.key, "value": row["value"]}


def test_a_key_may_be_named_in_another_case_as_everywhere_in_spark(job: Job, tmp_path: Path) -> None:
    (tmp_path / "in").write_text('{"key": "a", "value": 1}\n')
    pipeline = Pipeline("case")
    records = pipeline.read_json(tmp_path / "in", schema="key STRING, value BIGINT")
    records.key_by("KEY").process(KeyOf(), schema="key STRING, value BIGINT").write_json(tmp_path / "out")
    run = job(graph_of(pipeline))
    run.to_end()
    run.checkpoint(1)
    (written,) = (tmp_path / "out").glob("part-*")
    assert json.loads(written.read_text()) == {"key": "a", "value": 1}


class Worker(ProcessFunction):
    """Tells worker processes and the code in them apart."""

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        *_, last = sys.modules[HELD].functions.values()
        return {"worker": os.getpid(), "code": last.__dict__.setdefault("mark", uuid4().hex)}


def test_a_worker_unpickles_the_code_around_a_function_once(job: Job, tmp_path: Path) -> None:
    numbers(tmp_path / "in")
    pipeline = Pipeline("worker")
    records = pipeline.read_json(tmp_path / "in", schema="key STRING, value BIGINT")
    records.key_by("key").process(Worker(), schema="worker INT, code STRING").write_json(tmp_path / "out")
    run = job(graph_of(pipeline))
    for _ in range(3):
        run.batch(run.graph.vertices[0].id, 0)
    run.to_end()
    run.checkpoint(1)
    found: dict[int, set[str]] = defaultdict(set)
    for path in (tmp_path / "out").glob("part-*"):
        for row in map(json.loads, path.read_text().splitlines()):
            found[row["worker"]].add(row["code"])
    assert found
    assert all(len(codes) == 1 for codes in found.values())


class Everything(ProcessFunction):
    """All shapes and types, timers of both kinds."""

    number = ValueState("INT")
    money = ValueState("DECIMAL(10,2)")
    day = ValueState("DATE")
    at = ValueState("TIMESTAMP")
    pair = ValueState("STRUCT<a: INT, b: ARRAY<STRING>>")
    seen = ListState("STRING")
    counts = MapState("STRING", "BIGINT")
    short = ValueState("STRING", ttl="1 second")
    recent = MapState("STRING", "BOOLEAN", ttl=1000)

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        word = row["word"]
        self.number.set(self.number.get(0) + 1)
        self.money.set(Decimal("1.50") * self.number.get())
        self.day.set(date(2026, 1, self.number.get()))
        self.at.set(datetime(2026, 1, 1, self.number.get(), tzinfo=UTC))
        self.pair.set({"a": self.number.get(), "b": [word]})
        self.seen.append(word)
        self.counts[word] = self.counts.get(word, 0) + 1
        yield self.emitted("record", context)
        if word == "event":
            context.timers.register_event_time(row["at"])
        elif word == "wall":
            context.timers.register_processing_time(row["at"])
        elif word == "drop":
            context.timers.delete_event_time(row["at"])
            self.seen.clear()
        elif word == "short":
            self.short.set("here")
            self.recent["x"] = True

    def on_timer(self, context: Any, timer: Any) -> Any:
        return self.emitted(f"{'event' if timer.is_event_time else 'wall'} {timer.time_ms}", context)

    def emitted(self, what: str, context: Any) -> dict[str, Any]:
        return {
            "key": context.key,
            "what": what,
            "state": f"{self.number.get()} {self.money.get()} {self.day.get()} {self.at.get():%H} {self.pair.get()}"
            f" {list(self.seen)} {dict(self.counts.items())} {self.short.get('-')} {len(self.recent)}",
        }


class Fed:
    """A job whose keyed vertex is fed by hand; emitted: what it has put out."""

    def __init__(self, job: Job, backend: str, add: Callable[[Any], Any], *more: str) -> None:
        """more: columns of the records beside those that are always there; NULL in all."""
        pipeline = Pipeline("fed", parallelism=1, max_parallelism=8)
        self.more = more
        extra = [f"CAST(NULL AS STRING) AS {name}" for name in more]
        records = pipeline.generate(1).select("'a' AS key", *extra, "'b' AS word", "sequence AS at").key_by("key")
        add(records).uid("keyed").rebalance().print()
        self.run = job(graph_of(pipeline, BACKENDS[backend]))
        self.source = self.run.graph.vertices[0].id
        self.emitted: list[dict[str, Any]] = []

    @property
    def program(self) -> Any:
        return self.run.programs["keyed", 0]

    def note(self, batch: Any) -> Fed:
        self.emitted += [row for emission in batch.emissions for row in emission.table.to_pylist()]
        return self

    def feed(self, *rows: tuple[str, str, int]) -> Fed:
        keys, words, times = zip(*rows, strict=True)
        hashes = [sum(map(ord, key)) * 0x9E3779B97F4A7C15 % 2**63 for key in keys]
        table = pa.table([keys, words, times, hashes], ["key", "word", "at", "__hash"])
        for name in self.more:
            table = table.append_column(pa.field(name, pa.string()), pa.nulls(len(rows), pa.string()))
        return self.note(self.program.process(self.source, table))

    def restart(self, number: int) -> None:
        self.restore(self.program.snapshot(number).persist(), number)

    def restore(self, kept: SubtaskState | None, number: int) -> None:
        """The next attempt of the keyed vertex alone; None: with no state."""
        self.program.close()
        self.run.attempt += 1
        where = SubtaskId(AttemptId("job", self.run.run_id, self.run.attempt), "keyed", 0)
        context = ProgramContext(where, self.run.graph, self.run.directory, kept, number)
        self.run.programs["keyed", 0] = self.run.engine.build(context)
        self.note(self.program.open())


def everything(stream: Any) -> Any:
    return stream.process(Everything(), schema="key STRING, what STRING, state STRING")


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_state_of_all_shapes_and_timers_survive_a_restart(job: Job, backend: str) -> None:
    fed = Fed(job, backend, everything)
    fed.note(fed.program.tick(1000))
    fed.feed(("x", "event", 50), ("y", "wall", 3000), ("x", "short", 0))
    emitted = {row["key"]: row["state"] for row in fed.emitted}
    lists = "['event', 'short'] {'event': 1, 'short': 1}"
    assert emitted["x"] == f"2 3.00 2026-01-02 02 {{'a': 2, 'b': ['short']}} {lists} - 0"
    fed.restart(1)
    fed.note(fed.program.tick(1500))
    assert 1500 < fed.program.wakes_at() <= 3000
    assert not fed.program.advance(49).emissions[1:], "the prologue only"
    fed.emitted.clear()
    fed.note(fed.program.advance(50)).note(fed.program.tick(2999))
    state = f"2 3.00 2026-01-02 02 {{'a': 2, 'b': ['short']}} {lists} here 1"
    assert fed.emitted == [{"key": "x", "what": "event 50", "state": state}]
    fed.note(fed.program.tick(3000))
    assert [row["what"] for row in fed.emitted[1:]] == ["wall 3000"]
    assert fed.program.wakes_at() > 3000
    fed.feed(("x", "look", 0))
    assert fed.emitted[-1]["state"].endswith(" - 0"), "what is over is not seen any more"
    fed.feed(("z", "event", 7_000), ("z", "drop", 7_000), ("z", "event", 8_000))
    fed.emitted.clear()
    fed.note(fed.program.finish())
    assert [row["what"] for row in fed.emitted] == ["event 8000"], "the end of the input fires what is left"


class Greater(ProcessFunction):
    """EmitIfGreater as it was written later."""

    last = ValueState("BIGINT")
    times = ValueState("INT")

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        self.times.set(self.times.get(0) + 1)
        return {"key": context.key, "what": str(self.last.get()), "state": f"{self.times.get()} {sorted(row)}"}


class Earlier(ProcessFunction):
    last = ValueState("BIGINT")
    gone = ListState("STRING")

    def process(self, context: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        self.last.set(row["at"])
        self.gone.append(row["word"])


class OtherType(ProcessFunction):
    last = ValueState("STRING")

    def process(self, context: Any, row: dict[str, Any]) -> None: ...


def of(function: ProcessFunction) -> Callable[[Any], Any]:
    return lambda stream: stream.process(function, schema="key STRING, what STRING, state STRING")


def test_changed_code_finds_the_state_that_has_kept_its_name_and_type(job: Job) -> None:
    fed = Fed(job, "memory", of(Earlier()))
    fed.feed(("x", "a", 7))
    kept = fed.program.snapshot(1).persist()
    later = Fed(job, "memory", of(Greater()), "more")
    later.restore(kept, 1)
    later.feed(("x", "a", 1)).feed(("x", "a", 1))
    assert [row["what"] for row in later.emitted] == ["7", "7"]
    assert [row["state"] for row in later.emitted] == [
        "1 ['at', 'key', 'more', 'word']",
        "2 ['at', 'key', 'more', 'word']",
    ]
    wrong = Fed(job, "memory", of(OtherType()))
    with pytest.raises(StateUnreadable, match=r"state 'last' .* was stored as value of int64, .* value of string"):
        wrong.restore(kept, 1)


class OtherShape(ProcessFunction):
    gone = ValueState("STRING")

    def process(self, context: Any, row: dict[str, Any]) -> None: ...


def test_a_state_omitted_for_a_while_is_not_mistaken_for_another_one(job: Job) -> None:
    fed = Fed(job, "memory", of(Earlier()))
    kept = fed.feed(("x", "a", 7)).program.snapshot(1).persist()
    without = Fed(job, "memory", of(Greater()))
    without.restore(kept, 1)
    kept = without.program.snapshot(2).persist()  # the key was not visited: what is gone is still there
    with pytest.raises(StateUnreadable, match=r"state 'gone' .* was stored as list of string, .* value of string"):
        Fed(job, "memory", of(OtherShape())).restore(kept, 2)


class HalfReading(ValueError):
    """An author's own."""


class Misbehaves(ProcessFunction):
    number = ValueState("INT")
    days = ListState("DATE")

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        match row["word"]:
            case "raise":
                raise ValueError("this sensor is broken")
            case "own":
                raise HalfReading("no unit")
            case "exit":
                sys.exit("no sensor")
            case "type":
                self.number.set("many")
            case "column":
                return {"key": "x", "whta": "x"}
            case "output":
                return {"key": 17}
            case "number":
                self.days.append(5)
            case "timer":
                context.timers.register_event_time(datetime(2026, 1, 1))
            case "tuple":
                return [("x", "y")]
        return None


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("raise", "the Python function raised ValueError: this sensor is broken"),
        ("own", r"the Python function raised \S*HalfReading: no unit"),
        ("number", r"state 'days' is date32\[day\] and cannot hold 5"),
        ("type", "state 'number' is int32 and cannot hold 'many'"),
        ("column", "emitted a column 'whta' that its schema does not have"),
        ("output", "a value for column 'key' that is not of type string"),
        ("timer", "the time of a timer needs a time zone"),
        ("tuple", "but its schema has 3 columns"),
    ],
)
def test_a_mistake_of_a_function_is_reported_in_a_sentence(job: Job, word: str, sentence: str) -> None:
    fed = Fed(job, "memory", of(Misbehaves()))
    with pytest.raises(DataError, match=sentence) as emitted:
        fed.feed(("x", word, 0))
    assert "keyed" in str(emitted.value) or "process" in str(emitted.value)
    assert "Traceback" not in str(emitted.value)


def test_a_function_that_exits_fails_the_job_with_key_and_record(job: Job) -> None:
    fed = Fed(job, "memory", of(Misbehaves()))
    with pytest.raises(UserError, match=r"Python function raised SystemExit: no sensor; the key: 'x'; the record: \{"):
        fed.feed(("x", "fine", 0), ("x", "exit", 0))


def test_a_type_that_spark_does_not_know_is_refused_before_the_first_record(job: Job) -> None:
    class Wrong(ProcessFunction):
        last = ValueState("WORD")

        def process(self, context: Any, row: dict[str, Any]) -> None: ...

    with pytest.raises(UserError, match="the type of state 'last' 'value WORD' is wrong"):
        Fed(job, "memory", of(Wrong()))


@pytest.mark.parametrize("backend", ["incremental", "rocksdb"])
def test_the_first_record_of_each_key_passes_and_again_after_its_time(job: Job, backend: str) -> None:
    fed = Fed(job, backend, lambda stream: stream.deduplicate(ttl="1 second"))
    fed.note(fed.program.tick(1000))
    fed.feed(("x", "first", 1), ("y", "first", 2), ("x", "second", 3), ("y", "second", 4))
    assert [(row["key"], row["word"], row["at"]) for row in fed.emitted] == [("x", "first", 1), ("y", "first", 2)]
    fed.restart(1)
    fed.emitted.clear()
    fed.note(fed.program.tick(1999)).feed(("x", "third", 5), ("z", "first", 6))
    assert [row["key"] for row in fed.emitted] == ["z"]
    fed.note(fed.program.tick(2000)).feed(("x", "fourth", 7), ("z", "second", 8))
    assert [(row["key"], row["word"]) for row in fed.emitted] == [("z", "first"), ("x", "fourth")]
    assert sorted(fed.emitted[-1]) == ["at", "key", "word"], "records leave as they came"


def test_the_first_records_of_an_attempt_use_the_time_that_was_set_before_them(job: Job) -> None:
    fed = Fed(job, "memory", lambda stream: stream.deduplicate(ttl="1 second"))
    fed.restore(None, 0)
    fed.note(fed.program.tick(1000)).feed(("x", "first", 1))
    fed.note(fed.program.tick(1500)).feed(("x", "second", 2))
    assert [row["word"] for row in fed.emitted] == ["first"]


class Visited(ProcessFunction):
    """A large value of which every record changes a byte."""

    pages = ValueState("BINARY")

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        pages = bytearray(self.pages.get(PAGES))
        pages[row["at"] % len(pages)] ^= 1 + len(row["word"])
        self.pages.set(bytes(pages))
        return {"key": context.key, "what": str(row["at"]), "state": hashlib.sha256(pages).hexdigest()}


PAGES = random.Random(11).randbytes(100_000)


@pytest.mark.parametrize("backend", ["diffs", "incremental", "rocksdb"])
def test_a_large_value_is_stored_as_its_difference_and_restored(job: Job, backend: str) -> None:
    fed = Fed(job, backend, lambda stream: stream.process(Visited(), schema="key STRING, what STRING, state STRING"))
    expected = {key: bytearray(PAGES) for key in "abc"}

    def feed(keys: str, at: int, word: str) -> None:
        for key in keys:
            expected[key][at] ^= 1 + len(word)
        fed.emitted.clear()
        fed.feed(*((key, word, at) for key in keys))
        wanted = {key: hashlib.sha256(expected[key]).hexdigest() for key in keys}
        assert {row["key"]: row["state"] for row in fed.emitted} == wanted

    feed("abc", 5, "first")
    stored = {1: fed.run.checkpoint(1)["keyed", 0]}
    feed("abc", 99_000, "second")
    stored[2] = fed.run.checkpoint(2, base_id=1)["keyed", 0]
    feed("ab", 50_000, "given up")
    fed.run.checkpoint(3, base_id=2)
    feed("b", 50_001, "fourth")
    stored[4] = fed.run.checkpoint(4, base_id=2)["keyed", 0]
    fed.restore(stored[4], 4)
    feed("abc", 7, "restored")
    stored[5] = fed.run.checkpoint(5, base_id=4)["keyed", 0]
    fed.restore(stored[5], 5)
    feed("cab", 8, "restored again")
    if backend == "diffs":
        state = stored[5].operators[0]
        assert [increment.checkpoint_id for increment in state.increments] == [2, 4, 5]
        assert [increment.diff_values for increment in state.increments] == [3, 2, 3]
        assert state.handle is not None
        assert state.handle.size_bytes > 300_000
        assert sum(increment.size_bytes for increment in state.increments) < 15_000
    else:
        assert not any(increment.diff_values for increment in stored[5].operators[0].increments)


class Collected(ProcessFunction):
    """A map and a list with 10,000 elements each, of which every further record changes some."""

    prices = MapState("STRING", "BIGINT")
    names = ListState("STRING")

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        if not self.names:
            self.names.set([f"name {number}" for number in range(ELEMENTS)])
            for number in range(ELEMENTS):
                self.prices[f"price {number}"] = number
        elif row["word"] == "entry":
            self.prices[f"price {row['at']}"] += 1
        elif row["word"] == "removal":
            del self.prices[f"price {row['at']}"]
        else:
            self.names.append(f"name {row['at']}")
        state = [list(self.prices.items()), list(self.names)]
        return {"key": context.key, "what": row["word"], "state": hashlib.sha256(repr(state).encode()).hexdigest()}


ELEMENTS = 10_000


@pytest.mark.parametrize("backend", ["diffs", "rocksdb"])
@pytest.mark.parametrize("word", ["entry", "removal", "appended element"])
def test_a_changed_element_of_a_map_or_list_stores_that_element(job: Job, word: str, backend: str) -> None:
    fed = Fed(job, backend, lambda stream: stream.process(Collected(), schema="key STRING, what STRING, state STRING"))
    fed.feed(("x", "first", 0))
    stored = {1: fed.run.checkpoint(1)["keyed", 0]}
    fed.feed(("x", word, 4_321))
    stored[2] = fed.run.checkpoint(2, base_id=1)["keyed", 0]
    fed.restore(stored[2], 2)
    fed.emitted.clear()
    fed.feed(("x", "appended element", 1))
    prices, names = {f"price {n}": n for n in range(ELEMENTS)}, [f"name {n}" for n in range(ELEMENTS)]
    match word:
        case "entry":
            prices["price 4321"] += 1
        case "removal":
            del prices["price 4321"]
        case _:
            names.append("name 4321")
    names.append("name 1")
    (row,) = fed.emitted
    assert row["state"] == hashlib.sha256(repr([list(prices.items()), names]).encode()).hexdigest()
    first, second = (stored[number].operators[0] for number in (1, 2))
    assert first.handle is not None
    assert sum(handle.size_bytes for handle in (first.handle, *first.files)) > 20 * ELEMENTS
    new = [handle for handle in (*second.increments, *second.files) if handle.checkpoint_id == 2]
    assert 0 < sum(handle.size_bytes for handle in new) < 5_000, "most of it describes the columns"
