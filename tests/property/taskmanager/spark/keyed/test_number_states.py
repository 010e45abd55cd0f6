"""Process functions whose states are numbers, which are packed, against one dict of values for each key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from lockgate_taskmanager.spark.keyed.runner import EXPIRY, KEY, NEVER, PAYLOAD, VALUE, Declared, Runner
from lockgate_taskmanager.state.format.key_payload import PACKED

from tests.process_runner import made, visits

TTL_MS = 50
STATES = (
    Declared("whole", VALUE, pa.int64(), None, 0),
    Declared("real", VALUE, pa.float64(), None, 0),
    Declared("is_on", VALUE, pa.bool_(), None, TTL_MS),
)
RESULT = pa.schema([("seen", pa.string())])
VALUES = {
    "whole": st.integers(-(1 << 63), (1 << 63) - 1),
    "real": st.floats(allow_nan=False),
    "is_on": st.booleans(),
}
SETS = st.one_of(*(st.tuples(st.just(name), st.none() | values) for name, values in VALUES.items()))
TIMER = st.tuples(st.just("timer"), st.integers(0, 1000))
STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.lists(SETS | TIMER, max_size=4)), max_size=12)


class Scripted:
    """Does what it was asked to for each record, and emits what it has seen before."""

    def __init__(self, asked: list[tuple[str, Any]]) -> None:
        self.asked = asked

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        seen = {name: getattr(self, name).get() for name in VALUES if getattr(self, name).exists()}
        for name, value in self.asked:
            if name == "timer":
                context.timers.register_event_time(value)
            else:
                getattr(self, name).set(value)
        return {"seen": repr(seen)}


@given(steps=STEPS)
def test_values_are_found_again_as_they_were_set_until_they_expire(
    steps: list[tuple[str, int, list[tuple[str, Any]]]],
) -> None:
    payloads: dict[str, bytes | None] = {}
    model: dict[str, dict[str, tuple[Any, int]]] = {"a": {}, "b": {}}
    timers: dict[str, set[int]] = {"a": set(), "b": set()}
    now_ms = 1_000
    for key, later, asked in steps:
        now_ms += later
        known = {name: entry for name, entry in model[key].items() if not 0 < entry[1] <= now_ms}
        records = pa.record_batch({"k": [key]})
        runner = Runner(Scripted(asked), STATES, ("k",), ("k",), RESULT)
        out, *kept = made(runner, visits(records, [1], [payloads.get(key)], now_ms=now_ms), records)
        assert out["seen"] == repr({name: known[name][0] for name in VALUES if name in known})
        for name, value in asked:
            if name == "timer":
                timers[key].add(value)
            elif value is None:
                known.pop(name, None)
            else:
                known[name] = (value, now_ms + TTL_MS if name == "is_on" else 0)
        model[key] = known
        for row in kept:
            assert row[KEY] == 0
            payloads[key] = row[PAYLOAD]
            ends = [expiry for _, expiry in known.values()]
            lasts = bool(timers[key]) or 0 in ends or not ends
            assert row[EXPIRY] == (NEVER if lasts else max(ends))
        payload = payloads.get(key)
        is_packed = payload is not None and payload.startswith(PACKED)
        if kept:
            assert is_packed == (known.keys() == VALUES.keys() and not timers[key])
            assert (payload is None) == (not known and not timers[key])
