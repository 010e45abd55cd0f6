"""A job that lags, whose checkpoints take longer than their interval: the next ones begin before they end."""

from __future__ import annotations

import itertools
import threading
import time

from lockgate_proto.messages import CompletedCheckpoint

from examples.frame import Example, Place, Scene, Step, Wrong
from examples.runnable import unaligned
from lockgate import Job

_PATIENCE_S, _LOOK_EVERY_S = 60.0, 0.1


def _pipeline(place: Place) -> Job:
    job = Job(
        "overlapping checkpoints",
        parallelism=2,
        checkpoint_interval_ms=200,
        max_concurrent_checkpoints=4,
        retained_checkpoints=10,
    )
    unaligned.slow_ids(job, place).write_json(place.output / "ids")
    return job


def _see_two_at_a_time(scene: Scene) -> None:
    never, deadline = threading.Event(), time.monotonic() + _PATIENCE_S
    while True:
        for younger, older in itertools.pairwise(scene.client.checkpoints(scene.key)):
            if younger.triggered_unix_ms < _completed_unix_ms(older):
                begun, ms = younger.triggered_unix_ms - older.triggered_unix_ms, older.duration_ms
                scene.say(
                    f"  checkpoint {younger.checkpoint_id} began {begun} ms after {older.checkpoint_id}, of {ms} ms"
                )
                return
        if time.monotonic() > deadline:
            raise Wrong("no checkpoint began while another one was under way")
        never.wait(_LOOK_EVERY_S)


def _completed_unix_ms(checkpoint: CompletedCheckpoint) -> int:
    return checkpoint.triggered_unix_ms + checkpoint.duration_ms


EXAMPLE = Example(
    "several checkpoints in flight, each complete on its own",
    unaligned.make_input,
    _pipeline,
    unaligned.check,
    steps=(Step(0.3, "two checkpoints are in flight", _see_two_at_a_time),),
)
