"""A snapshot is the fold of what was merged before it, whatever is merged while it is written."""

from __future__ import annotations

import threading
from collections import defaultdict

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate
from lockgate_taskmanager.state.aggregates.keyed_state import KeyedState
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.spec import StoreSpec

OPERATOR = KeyedAggregate(
    keys=("k",),
    aggregates=(
        Aggregate("n", AggregateFunction.COUNT, ""),
        Aggregate("s", AggregateFunction.SUM, "v"),
        Aggregate("lo", AggregateFunction.MIN, "t"),
    ),
)
SPEC = StoreSpec("count", OPERATOR, 8, range(8))
SCHEMA = pa.schema(
    [("k", pa.int64()), ("__hash", pa.int64()), ("__rows", pa.int64()), ("__p1", pa.int64()), ("__p2", pa.string())]
)
Row = tuple[int | None, int | None, str | None]
rows = st.tuples(
    st.one_of(st.none(), st.integers(0, 20)),
    st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    st.one_of(st.none(), st.text(max_size=3)),
)
batches = st.lists(rows, max_size=15)
steps = st.lists(st.one_of(batches, st.just("freeze"), st.just("release")), max_size=12)


def hash_of(key: int | None) -> int:
    """Mixed, and with collisions: keys 3 and 13, NULL and 20 share their hashes."""
    number = {13: 3, None: 20}.get(key, key)
    assert number is not None
    return (number * 0x9E3779B97F4A7C15) % 2**64 - 2**63


def table(batch: list[Row]) -> pa.Table:
    keys, values, texts = ([row[i] for row in batch] for i in range(3))
    hashes = [hash_of(key) for key in keys]
    arrays = [pa.array(c, f.type) for c, f in zip([keys, hashes, [1] * len(batch), values, texts], SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def fold(batch_list: list[list[Row]]) -> dict[int | None, tuple[int, int | None, str | None]]:
    found: dict[int | None, list[Row]] = defaultdict(list)
    for batch in batch_list:
        for row in batch:
            found[row[0]].append(row)
    result = {}
    for key, members in found.items():
        values = [row[1] for row in members if row[1] is not None]
        texts = [row[2] for row in members if row[2] is not None]
        lowest = min(texts, key=lambda text: text.encode()) if texts else None
        result[key] = (len(members), sum(values) if values else None, lowest)
    return result


def content(data: pa.Buffer) -> dict[int | None, tuple[int, int | None, str | None]]:
    with pa.ipc.open_file(data) as file:
        found = file.read_all()
    assert len(set(found.column("k").to_pylist())) == found.num_rows
    return {row["k"]: (row["n#count"], row["s#sum"], row["lo#min"]) for row in found.to_pylist()}


def restored(data: pa.Buffer) -> KeyedState:
    found = state_file.read(data, "f", signature=state_file.signature(OPERATOR), max_parallelism=8, wanted=range(8))
    state = KeyedState(SPEC, found.about.partial_schema)
    state.restore([found])
    return state


@settings(max_examples=200, deadline=None)
@given(steps)
def test_a_snapshot_is_the_fold_of_earlier_records(plan: list[list[Row] | str]) -> None:
    state = KeyedState(SPEC, SCHEMA)
    merged: list[list[Row]] = []
    frozen = []
    for step in plan:
        if step == "freeze":
            frozen.append((state.freeze(), fold(merged)))
        elif step == "release" and frozen:
            snapshot, expected = frozen.pop()
            assert content(snapshot.to_buffer()) == expected
            snapshot.release()
        elif isinstance(step, list):
            changed = state.merge(table(step)).changed
            merged.append(step)
            now = fold(merged)
            assert {r["k"]: (r["n"], r["s"], r["lo"]) for r in changed.to_pylist()} == {r[0]: now[r[0]] for r in step}
    for snapshot, expected in frozen:
        assert content(snapshot.to_buffer()) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(batches, max_size=5), st.lists(batches, max_size=5))
def test_a_restored_state_continues_like_an_uninterrupted_one(before: list[list[Row]], after: list[list[Row]]) -> None:
    state = KeyedState(SPEC, SCHEMA)
    for batch in before:
        state.merge(table(batch))
    again = restored(state.freeze().to_buffer())
    for batch in after:
        again.merge(table(batch))
    assert content(again.freeze().to_buffer()) == fold(before + after)


def test_merging_while_a_snapshot_is_written_on_another_thread() -> None:
    state = KeyedState(SPEC, SCHEMA)
    everything: list[Row] = [(i, i, str(i)) for i in range(20_000)]
    state.merge(table(everything))
    results: list[dict[int | None, tuple[int, int | None, str | None]]] = []
    for turn in range(1, 6):
        snapshot = state.freeze()
        writer = threading.Thread(target=lambda item=snapshot: results.append(content(item.to_buffer())), name="writer")
        writer.start()
        for start in range(0, 20_000, 2_000):
            state.merge(table(everything[start : start + 2_000]))
        writer.join()
        snapshot.release()
        assert all(value[0] == turn for value in results[-1].values())
        assert len(results[-1]) == 20_000
