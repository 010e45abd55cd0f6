"""How an object says that it has state, and possible mistakes."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from lockgate_proto.messages import ObjectState, RecordFunction

from lockgate import Job, PipelineError, dead_letter

pytestmark = pytest.mark.spark  # cloudpickle is pyspark's


class Plain:
    """No state."""

    def __call__(self, record: Any) -> Any:
        return record


class Methods(Plain):
    """State of the same number of subtasks."""

    def snapshot_state(self) -> Any:
        return [1]

    def restore_state(self, state: Any) -> None: ...


def made(function: Any, **attributes: Any) -> Any:
    """An object of a class of its own with more attributes."""
    return type("Counter", (function,), attributes)()


def state_of(function: Any, **more: Any) -> ObjectState:
    stream = Job("job").generate(10).map(function, "sequence BIGINT", **more)
    stream.print()
    kind = stream._plan.nodes[1].kind
    assert isinstance(kind, RecordFunction)
    return kind.state


def test_state_is_found_in_methods_and_attributes() -> None:
    assert state_of(Plain()) is ObjectState.OBJECT_STATE_UNSPECIFIED
    assert state_of(lambda record: record) is ObjectState.OBJECT_STATE_UNSPECIFIED
    assert state_of(Methods()) is ObjectState.OBJECT_STATE_FIXED
    assert state_of(made(Plain, state_fields=("count",))) is ObjectState.OBJECT_STATE_FIXED
    assert state_of(made(Methods, on_rescale="split")) is ObjectState.OBJECT_STATE_SPLIT
    assert state_of(made(Methods, on_rescale="union", max_state_bytes=5)) is ObjectState.OBJECT_STATE_UNION
    assert state_of(Methods(), vectorized="arrow") is ObjectState.OBJECT_STATE_FIXED
    assert state_of(Methods(), on_error="skip") is ObjectState.OBJECT_STATE_FIXED


class Proxy(Plain):
    """Has every attribute that one asks for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return nothing


def test_an_object_that_answers_for_everything_has_no_state() -> None:
    assert state_of(Proxy()) is ObjectState.OBJECT_STATE_UNSPECIFIED


def nothing(self: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "more", "text"),
    [
        (made(Plain, snapshot_state=nothing), {}, "has snapshot_state(), and needs restore_state(state) as well"),
        (made(Plain, restore_state=nothing), {}, "Counter has restore_state(state), and needs snapshot_state()"),
        (
            made(Plain, changes_since_last_checkpoint=nothing),
            {},
            "has changes_since_last_checkpoint(), and needs snapshot_state() and restore_state(state) as well",
        ),
        (made(Methods, state_fields=("a",)), {}, "has state_fields, and so none of snapshot_state()"),
        (made(Plain, state_fields=("a",), on_rescale="split"), {}, "has state_fields, and so none of"),
        (made(Plain, state_fields="count"), {}, "must name its fields, each once, such as (\"count\",), not 'count'"),
        (made(Plain, state_fields=("a", "a")), {}, "must name its fields, each once"),
        (made(Methods, on_rescale="sum"), {}, 'on_rescale of Counter must be one of "split", "union", not \'sum\''),
        (
            made(Methods, on_rescale="union", changes_since_last_checkpoint=nothing),
            {},
            'has changes_since_last_checkpoint(), so its on_rescale can be "split" but not "union"',
        ),
        (made(Methods, max_state_bytes="1 GB"), {}, "max_state_bytes of Counter must be a whole number"),
        (Methods().__call__, {}, "give Methods a method __call__, and write map(Methods(...))"),
        (partial(Methods()), {}, "finds the state of an object only if it gets the object itself"),
        (Methods(), {"vectorized": "pandas", "on_error": "skip"}, "cannot be vectorized and have on_error"),
        (Methods(), {"vectorized": "arrow", "on_error": dead_letter("bad")}, "cannot be vectorized and have on_error"),
    ],
)
def test_each_mistake_is_one_sentence(function: Any, more: dict[str, Any], text: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(text)):
        state_of(function, **more)
