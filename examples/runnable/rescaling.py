"""Counts words while the number of counting subtasks goes from 2 to 3 and back: every count stays exact."""

from __future__ import annotations

from examples.frame import Example, Place, Scene, Step
from examples.runnable import word_count
from lockgate import Job, count
from lockgate.client.rescale import rescale


def _pipeline(place: Place) -> Job:
    job = Job("rescaling", parallelism=2, checkpoint_interval_ms=500)
    words = job.read_text(place.input).uid("lines").sql("SELECT explode(split(value, ' ')) AS word FROM input")
    counts = words.key_by("word").aggregate(n=count()).uid("counts")
    counts.write_sql(f"sqlite:///{place.output}/words.db", "counts", key="word").uid("table")
    return job


def _to(parallelism: int) -> Step:
    def do(scene: Scene) -> None:
        rescale(scene.client, scene.key, {"counts": parallelism})

    return Step(0.2 if parallelism == 3 else 0.5, f"rescale to {parallelism} counting subtasks", do)


EXAMPLE = Example(
    "the parallelism of a running job is changed, 2 to 3 to 2",
    word_count.make_input,
    _pipeline,
    word_count.check,
    steps=(_to(3), _to(2)),
    cluster={"taskmanagers": 2, "slots": 3},
)
