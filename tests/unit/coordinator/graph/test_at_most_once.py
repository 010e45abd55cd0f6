"""Jobs with checkpoints at most once: the warnings, and what would break their promise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.graph.warnings import warnings
from lockgate_coordinator.job.read_again import ReadAgain
from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    Edge,
    GeneratorSource,
    JobGraph,
    KafkaSink,
    KafkaWriteMode,
    OnError,
    Operator,
    Partitioning,
    SqlTransform,
    StragglerReplacement,
    Vertex,
)

KAFKA = KafkaSink("h:9", "out", "k", "v", KafkaWriteMode.KAFKA_AT_LEAST_ONCE)


def graph(mode: CheckpointMode, sink: KafkaSink = KAFKA, on_error: OnError = OnError.FAIL) -> JobGraph:
    source, shape = Operator("source", "source", GeneratorSource()), SqlTransform("SELECT * FROM input")
    operators = (Operator("shape", "shape", shape, on_error), Operator("sink", "sink", sink))
    return JobGraph(
        "job",
        (Vertex("a", "a", 1, 8, (source,)), Vertex("b", "b", 1, 8, operators)),
        (Edge("a", "b", Partitioning.FORWARD),),
        CheckpointOptions(mode=mode),
    )


EXACT = replace(KAFKA, mode=KafkaWriteMode.KAFKA_EXACTLY_ONCE)
REFUSED = {
    "a sink that repeats": (graph(CheckpointMode.AT_MOST_ONCE), "The sink 'sink' writes at least once"),
    "records that are skipped": (
        graph(CheckpointMode.AT_MOST_ONCE, EXACT, OnError.SKIP),
        "Operator 'shape' skips records that fail",
    ),
    "moved subtasks": (
        replace(
            graph(CheckpointMode.AT_MOST_ONCE, EXACT), straggler_replacement=StragglerReplacement(3.0, 9_000, 9_000)
        ),
        "The job replaces stragglers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_repeats_records_or_loses_some_without_a_failure_is_refused(name: str) -> None:
    found, beginning = REFUSED[name]
    (problem,) = validate(found)
    assert problem.startswith(beginning)
    exact = replace(found, checkpoints=CheckpointOptions(mode=CheckpointMode.EXACTLY_ONCE))
    assert validate(exact) == ()


def test_the_submitter_is_warned_of_what_a_failure_costs() -> None:
    found = graph(CheckpointMode.AT_MOST_ONCE, EXACT)
    assert validate(normalize(found)) == ()
    (text,) = warnings(found)
    assert text.startswith("Checkpoints are at most once: a failure loses")
    assert warnings(graph(CheckpointMode.EXACTLY_ONCE, EXACT)) == ()


def test_nothing_is_read_again() -> None:
    for never, count in ((False, 45), (True, 0)):
        again = ReadAgain(never=never)
        again.restored({("a", 0): 100}, {("a", 0): 60})
        again.ended(("a", 0), 105)
        assert again.count == count
