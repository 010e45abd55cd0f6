"""One task manager becomes slow: the subtask that it holds up is moved to another one, and every sum stays exact."""

from __future__ import annotations

import sqlite3
import threading
import time

from lockgate_proto.messages import JobState, JobStatus

from examples.frame import Example, Place, Scene, Step, Wrong
from examples.frame.example import compare
from examples.frame.slow import slowed
from lockgate import Job, JobHandle, count, stragglers, sum_

_KEYS, _RECORDS = 50, 2_000_000
_PATIENCE_S, _LOOK_EVERY_S = 120.0, 0.1


def _pipeline(place: Place) -> Job:
    """Two sources that never end, and whose time goes into each record."""
    replace = stragglers(factor=3, window_ms=3_000, pause_ms=60_000)
    job = Job("straggler", parallelism=2, checkpoint_interval_ms=500, replace_stragglers=replace)
    rows = job.generate().sql(
        f"SELECT CONCAT(`partition`, '-', sequence % {_KEYS}) AS k, sequence, "
        "aggregate(sequence(1, 60), 0L, (a, x) -> a + (x * sequence) % 7) AS work FROM input"
    )
    sums = rows.key_by("k").aggregate(n=count(), total=sum_("sequence"), work=sum_("work"))
    sums.write_sql(f"sqlite:///{place.output}/sums.db", "sums", key="k")
    return job


def _slow_down(scene: Scene) -> None:
    """Waits until no subtask runs there: it was moved, or this very process was killed."""
    slow = next(subtask.task_manager_id for subtask in scene.client.job(scene.key).subtasks if subtask.subtask == 1)
    (pid,) = (
        task_manager.pid
        for task_manager in scene.client.cluster().task_managers
        if task_manager.task_manager_id == slow
    )
    scene.say(f"  {slow} is slowed down to a fifth")
    never, deadline = threading.Event(), time.monotonic() + _PATIENCE_S
    with slowed(pid):
        while not _has_left(scene.client.job(scene.key), slow):
            if time.monotonic() > deadline:
                raise Wrong(f"after {_PATIENCE_S:g} s a subtask is still on {slow}")
            never.wait(_LOOK_EVERY_S)
    scene.say(f"  {scene.client.job(scene.key).straggler or f'{slow} was killed, and its subtask has left it so'}")


def _has_left(job: JobStatus, slow: str) -> bool:
    return job.state is JobState.RUNNING and all(subtask.task_manager_id != slow for subtask in job.subtasks)


def _drain(scene: Scene) -> None:
    """Everything that was read flows out; how much that is, is the input."""
    scene.client.stop(scene.key, drain=True)
    operators = JobHandle(scene.client, scene.key).wait(_PATIENCE_S).operators
    (read,) = (operator.records_out for operator in operators if operator.operator_id.startswith("generate"))
    (scene.place.input / "generated").write_text(str(read), encoding="utf-8")


def _check(place: Place) -> list[str]:
    """Each of the two generators counts from 0, so the number of its rows determines what every key must hold."""
    with sqlite3.connect(place.output / "sums.db") as database:
        found = {key: (n, total) for key, n, total in database.execute("SELECT k, n, total FROM sums")}
    generated = int((place.input / "generated").read_text(encoding="utf-8"))
    if (in_all := sum(n for n, _ in found.values())) != generated:
        return [f"{in_all} records are in the sums, {generated} were generated"]
    wanted = {}
    for generator in range(2):
        rows = sum(n for key, (n, _) in found.items() if key.startswith(f"{generator}-"))
        for rest in range(min(_KEYS, rows)):
            numbers = range(rest, rows, _KEYS)
            wanted[f"{generator}-{rest}"] = (len(numbers), sum(numbers))
    return compare(found, wanted, "count and sum of")


EXAMPLE = Example(
    "a subtask is moved away from a slow task manager",
    lambda _: _RECORDS,
    _pipeline,
    _check,
    steps=(
        Step(0.1, "a task manager becomes slow", _slow_down),
        Step(1.0, "stop, when everything that was read has flowed out", _drain),
    ),
    cluster={"taskmanagers": 3, "slots": 1},
)
