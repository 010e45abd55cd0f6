"""A process function that is bound to set no timers, as inside a loop."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.keyed.runner import EVENT, NEVER, PAYLOAD, VALUE, Declared, Runner
from lockgate_taskmanager.state.format.key_payload import read

from tests.process_runner import made, visits

RESULT = pa.schema([("n", pa.int64())])
STATES = (Declared("total", VALUE, pa.int64(), None, 0),)


class Function:
    total: Any

    def process(self, context: Any, row: dict[str, Any]) -> Any:
        self.total.set(self.total.get(0) + 1)
        if row["v"]:
            context.timers.register_processing_time(row["v"])
        yield (self.total.get(),)

    def on_timer(self, context: Any, timer: Any) -> Any:  # noqa: ARG002
        yield (-1,)


def run(value: int, payload: bytes | None, *, is_record: bool = True) -> list[dict[str, Any]]:
    runner = Runner(Function(), STATES, ("k",), ("k", "v"), RESULT, True)
    key = pa.record_batch({"k": ["a"]})
    records = [pa.record_batch({"k": ["a"], "v": [value]})] if is_record else []
    return made(runner, visits(key, [len(records)], [payload], 0, 100), *records)


def test_a_timer_is_refused_with_a_sentence() -> None:
    with pytest.raises(RuntimeError, match="inside a loop cannot set timers: the loop may have been found empty"):
        run(5, None)


@pytest.mark.parametrize("is_record", [True, False])
def test_timers_of_an_earlier_version_are_dropped_and_fire_no_more(is_record: bool) -> None:
    before = pickle.dumps(({"total": (7, 0)}, [3], [50]), 5)
    *out, kept = run(0, before, is_record=is_record)
    assert [row["n"] for row in out] == ([8] if is_record else [])
    assert read(kept[PAYLOAD]) == ({"total": (8 if is_record else 7, 0)}, [], [], {})
    assert kept[EVENT] == NEVER
