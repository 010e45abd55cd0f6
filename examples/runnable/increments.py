"""Counts words with incremental snapshots: each stores the counts that have changed, every fifth is full."""

from __future__ import annotations

from examples.frame import Example, Place
from examples.runnable import word_count
from lockgate import Job


def _pipeline(place: Place) -> Job:
    job = Job("increments", parallelism=2, checkpoint_interval_ms=300, full_snapshot_every=5)
    return word_count.count_words(job, place)


EXAMPLE = Example(
    "snapshots of what has changed, restored one upon the other", word_count.make_input, _pipeline, word_count.check
)
