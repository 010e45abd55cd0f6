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
KEYS = "abc"
ASKED = st.lists(SETS | TIMER, max_size=4)
STEP = st.tuples(st.integers(0, 40), st.dictionaries(st.sampled_from(KEYS), ASKED, min_size=1), st.booleans())
STEPS = st.lists(STEP, max_size=12)


class Scripted:
    """Does what it was asked to for the record of each key, and emits what it has seen before."""

    def __init__(self, asked: dict[str, list[tuple[str, Any]]]) -> None:
        self.asked = asked

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        seen = {name: getattr(self, name).get() for name in VALUES if getattr(self, name).exists()}
        for name, value in self.asked[row["k"]]:
            if name == "timer":
                context.timers.register_event_time(value)
            else:
                getattr(self, name).set(value)
        return {"seen": repr(seen)}


@given(steps=STEPS)
def test_values_are_found_again_as_they_were_set_until_they_expire(
    steps: list[tuple[int, dict[str, list[tuple[str, Any]]], bool]],
) -> None:
    payloads: dict[str, bytes | None] = {}
    model: dict[str, dict[str, tuple[Any, int]]] = {key: {} for key in KEYS}
    timers: dict[str, set[int]] = {key: set() for key in KEYS}
    now_ms = 1_000
    for later, asked, is_split in steps:
        now_ms += later
        batches = []
        for some in [[key] for key in asked] if is_split else [list(asked)]:
            records = pa.record_batch({"k": some})
            batches += [visits(records, [1] * len(some), [payloads.get(key) for key in some], now_ms=now_ms), records]
        rows = made(Runner(Scripted(asked), STATES, ("k",), ("k",), RESULT), *batches)
        out = [row["seen"] for row in rows if "seen" in row]
        kept = {list(asked)[row[KEY]]: row for row in rows if KEY in row}
        assert len(out) + len(kept) == len(rows), "a row for each key at most"
        for key, seen in zip(asked, out, strict=True):
            known = {name: entry for name, entry in model[key].items() if not 0 < entry[1] <= now_ms}
            assert seen == repr({name: known[name][0] for name in VALUES if name in known})
            model[key] = known
            _change(known, timers[key], asked[key], now_ms)
            if key in kept:
                row = kept[key]
                payload = payloads[key] = row[PAYLOAD]
                ends = [expiry for _, expiry in known.values()]
                lasts = bool(timers[key]) or 0 in ends or not ends
                assert row[EXPIRY] == (NEVER if lasts else max(ends))
                assert (payload is None) == (not known and not timers[key])
                is_packed = payload is not None and payload.startswith(PACKED)
                assert is_packed == (known.keys() == VALUES.keys() and not timers[key])


def _change(known: dict[str, tuple[Any, int]], timers: set[int], asked: list[tuple[str, Any]], now_ms: int) -> None:
    """What was asked for, in the model."""
    for name, value in asked:
        if name == "timer":
            timers.add(value)
        elif value is None:
            known.pop(name, None)
        else:
            known[name] = (value, now_ms + TTL_MS if name == "is_on" else 0)
