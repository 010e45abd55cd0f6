"""Kafka on both ends of a chain on real Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lockgate_proto.messages import KafkaSink, KafkaSource
from lockgate_taskmanager.task.program import Exhausted

from tests.kafka_broker import KafkaBroker

from .graphs import graph, sql, vertex

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

ROWS = 3_000


def test_a_chain_from_topic_to_topic_is_exact_across_attempts(job: Callable[..., Any], kafka: KafkaBroker) -> None:
    source, out, commits = kafka.topic(), kafka.topic(), kafka.topic()
    for partition in (0, 1):
        kafka.produce(source, [(b"k%d" % (n % 3), b"%d" % n) for n in range(ROWS)], partition)
    query = (
        "SELECT CAST(key AS STRING) AS k, concat(partition, '-', CAST(value AS STRING), '-', offset) AS v,"
        " timestamp > TIMESTAMP '2020-01-01' AS is_recent FROM input"
    )
    kinds = (
        KafkaSource(kafka.servers, (source,), bounded=True, options={"fetch.wait.max.ms": "10"}),
        sql(query),
        sql("SELECT k, v FROM input WHERE is_recent AND k <> 'k1'"),
        KafkaSink(kafka.servers, out, "k", "v", commits_topic=commits),
    )
    run = job(graph(vertex("all", *kinds, parallelism=2)))
    for subtask in (0, 1):
        while not run.batch("all", subtask):
            pass
    kept = run.checkpoint(1, commit=False)  # complete, and the process dies before it commits
    run.batch("all", 0)
    run.checkpoint(2, commit=False)  # never complete
    run.close()
    assert kafka.read(out) == []
    run.start(restore=kept)
    assert kafka.read(out), "what the snapshot had pending"
    for program in run.programs.values():
        while not isinstance(program.poll(), Exhausted):
            pass
    run.checkpoint(3)
    wanted = [
        (b"k%d" % (n % 3), b"%d-%d-%d" % (partition, n, n)) for partition in (0, 1) for n in range(ROWS) if n % 3 != 1
    ]
    assert sorted(kafka.read(out)) == sorted(wanted)
