"""Broadcast streams in the builder: the graph that they become, and the errors their author gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.messages import Edge, ObjectState, Partitioning, RecordFunction

from lockgate import Job, PipelineError, count, tumbling

pytestmark = pytest.mark.spark  # cloudpickle is pyspark's

FORWARD, HASH, REBALANCE, BROADCAST = (
    Partitioning.FORWARD,
    Partitioning.HASH,
    Partitioning.REBALANCE,
    Partitioning.BROADCAST,
)


class Scored:
    """Records with the version of the newest model."""

    state_fields = ("version",)

    def __init__(self) -> None:
        self.version = 0

    def process_broadcast(self, record: Any) -> None:
        self.version = record["sequence"]

    def __call__(self, record: Any) -> Any:
        return {"sequence": record["sequence"], "version": self.version}


SCHEMA = "sequence BIGINT, version BIGINT"


def made(*bases: type, **attributes: Any) -> Any:
    """An object of a class of its own."""
    return type("Rules", bases, attributes)()


def _streams(job: Job) -> tuple[Any, Any]:
    return job.generate(10), job.generate(5)


def test_the_operator_is_behind_both_and_as_wide_as_the_records() -> None:
    job = Job("swap", parallelism=3)
    records, models = _streams(job)
    scored = records.parallelism(2).with_broadcast(models).map(Scored(), SCHEMA)
    scored.filter("version > 0").print()
    graph = job.graph()
    assert set(graph.edges) == {Edge("generate-1", "map-1", FORWARD), Edge("generate-2", "map-1", BROADCAST)}
    assert {vertex.id: vertex.parallelism for vertex in graph.vertices} == {
        "generate-1": 2,
        "generate-2": 1,
        "map-1": 2,
    }
    kind = graph.vertices[2].operators[0].kind
    assert isinstance(kind, RecordFunction)
    assert kind.state is ObjectState.OBJECT_STATE_BROADCAST
    assert validate(graph) == ()


@pytest.mark.parametrize(
    ("behind", "partitioning"),
    [
        (lambda stream: stream.key_by("sequence"), HASH),
        (lambda stream: stream.rebalance(), REBALANCE),
        (lambda stream: stream.union(stream.select("*")), FORWARD),
    ],
)
def test_the_records_may_come_in_any_way_but_broadcast(
    behind: Callable[[Any], Any], partitioning: Partitioning
) -> None:
    job = Job("swap", parallelism=2)
    records, models = _streams(job)
    behind(records).with_broadcast(models).filter(made(Scored)).print()
    assert {edge.partitioning for edge in job.graph().edges if edge.target == "filter-1"} == {partitioning, BROADCAST}
    assert validate(job.graph()) == ()


@pytest.mark.parametrize("more", [{"vectorized": "arrow"}, {"on_error": "skip"}])
def test_records_may_be_vectorized_or_skipped(more: dict[str, Any]) -> None:
    job = Job("swap")
    records, models = _streams(job)
    records.with_broadcast(models).flat_map(Scored(), SCHEMA, **more).print()
    assert validate(job.graph()) == ()


def test_the_models_need_no_event_time_for_windows_over_the_scores() -> None:
    job = Job("swap")
    records, models = _streams(job)
    timed = records.event_time("sequence", out_of_order=5, column="at")
    scored = timed.with_broadcast(models).map(Scored(), "at BIGINT, version BIGINT")
    scored.key_by("version").window(tumbling(10)).aggregate(n=count()).print()
    assert validate(job.graph()) == ()


def nothing(self: Any, *_: Any) -> None: ...


def _yields(self: Any, record: Any) -> Any:  # noqa: ARG001
    yield 1


async def _waits(self: Any, record: Any) -> None: ...


def _two(self: Any, record: Any, version: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda record: record, "takes an object with the methods process_broadcast(record), for the records of the"),
        (Scored, "map() takes an object, not the class: map(Scored(...))"),
        (made(__call__=nothing), "takes an object with the methods process_broadcast(record)"),
        (Scored().__call__, "give Scored a method __call__, and write map(Scored(...))"),
        (partial(Scored()), "finds the state of an object only if it gets the object itself"),
        (made(process_broadcast=nothing, __call__=nothing), "what Rules keeps of the broadcast stream would be lost"),
        (made(Scored, process_broadcast=_yields), "process_broadcast() of Rules puts nothing out; write it without"),
        (made(Scored, process_broadcast=_waits), "process_broadcast() of Rules puts nothing out; write it without"),
        (made(Scored, process_broadcast=_two), "calls process_broadcast(record) of Rules with a record, but it takes"),
        (
            made(
                process_broadcast=nothing,
                __call__=nothing,
                snapshot_state=nothing,
                restore_state=nothing,
                on_rescale="union",
            ),
            "its state comes from a broadcast stream and is the same in every subtask, of which a new one gets a copy",
        ),
    ],
)
def test_each_unfit_object_is_one_sentence(function: Any, text: str) -> None:
    records, models = _streams(Job("swap"))
    with pytest.raises(PipelineError, match=re.escape(text)):
        records.with_broadcast(models).map(function, SCHEMA)


MISTAKES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no stream": (lambda records, _: records.with_broadcast([1, 2]), "takes a stream, not list"),
    "another job": (lambda records, _: records.with_broadcast(Job("b").generate(1)), "a stream of the same Job"),
    "itself": (lambda records, _: records.with_broadcast(records), "of a stream with itself"),
    "behind broadcast": (
        lambda records, models: records.broadcast().with_broadcast(models),
        "behind broadcast(); only the stream in its parentheses is broadcast",
    ),
    "broadcast twice": (
        lambda records, models: records.with_broadcast(models.broadcast()),
        "sends each record to every subtask; leave out broadcast()",
    ),
    "keyed": (
        lambda records, models: records.with_broadcast(models.key_by("sequence")),
        "sends each record to every subtask; leave out key_by()",
    ),
    "union": (
        lambda records, models: records.with_broadcast(models.union(models.select("*"))),
        "put one behind union(), such as select('*')",
    ),
    "print": (lambda records, models: records.with_broadcast(models).print(), "a BroadcastStream has no print()"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_one_sentence(name: str) -> None:
    use, text = MISTAKES[name]
    with pytest.raises(PipelineError, match=re.escape(text)):
        use(*_streams(Job("swap")))


def test_models_of_several_subtasks_are_refused_at_their_line() -> None:
    job = Job("swap", parallelism=2)
    records, models = _streams(job)
    records.with_broadcast(models).filter(Scored()).print()
    models.parallelism(2)
    with pytest.raises(PipelineError, match=r"generate\(\) here has 2 subtasks, and with_broadcast\(\) takes a stream"):
        job.graph()


def test_models_that_others_read_too_are_not_narrowed_unasked() -> None:
    job = Job("swap", parallelism=2)
    records, models = _streams(job)
    records.with_broadcast(models).filter(Scored()).print()
    models.select("sequence").print()
    with pytest.raises(PipelineError, match=r"generate\(\) here gives its records to with_broadcast\(\)") as caught:
        job.graph()
    assert "which would lose their 2; put an operator, such as select('*'), in front of" in str(caught.value)
    models.parallelism(1)
    assert validate(job.graph()) == ()


def test_an_operator_between_takes_the_one_subtask() -> None:
    job = Job("swap", parallelism=2)
    records, models = _streams(job)
    records.with_broadcast(models.select("*").uid("sender")).filter(Scored()).print()
    models.select("sequence").uid("other").print()
    found = {item.operators[0].id: item.parallelism for item in job.graph().vertices}
    assert {name: found[name] for name in ("generate-2", "sender", "other")} == {
        "generate-2": 2,
        "sender": 1,
        "other": 2,
    }


def test_models_may_be_broadcast_to_several_operators_and_a_narrow_job_needs_no_advice() -> None:
    for parallelism, reads_too in ((2, False), (1, True)):
        job = Job("swap", parallelism=parallelism)
        records, models = _streams(job)
        records.with_broadcast(models).filter(Scored()).print()
        records.with_broadcast(models).map(Scored(), SCHEMA).print()
        if reads_too:
            models.print()
        assert {item.id: item.parallelism for item in job.graph().vertices}["generate-2"] == 1
        assert validate(job.graph()) == ()
