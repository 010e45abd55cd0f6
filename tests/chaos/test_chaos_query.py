"""Queries of keyed state while the stream runs: an answer is the fold of the records below its checkpoint's offsets.

Each call asks two operators. The second takes the changes of the first, so their values do not fit together if they are
of different moments.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from lockgate_proto.messages import JobState, QueryStateResponse

from lockgate import Job, count, max_
from lockgate.client import ClientError
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import patient

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, BUCKETS = 2, 50
KEYS = [[partition, bucket] for partition in range(PARTITIONS) for bucket in range(BUCKETS)]
WANTED = {"totals": KEYS, "highest": [[partition] for partition in range(PARTITIONS)]}


def submit(testing: TestingCluster, key: str, **options: object) -> None:
    job = Job(key, key=key, parallelism=2, checkpoint_interval_ms=500, retained_checkpoints=200, **options)  # type: ignore[arg-type]
    rows = job.generate(rate=2_000, partitions=PARTITIONS)
    keyed = rows.select("partition", f"sequence % {BUCKETS} AS bucket", "sequence").key_by("partition", "bucket")
    totals = keyed.aggregate(n=count(), last=max_("sequence")).uid("totals")
    totals.key_by("partition").aggregate(last=max_("last")).uid("highest").write_json(testing.make_folder(key))
    testing.client.submit(key, patient(job.graph()))


def newest(testing: TestingCluster, key: str, after: int = 0) -> QueryStateResponse:
    """All keys as of the newest checkpoint, once there is one with a higher id than `after`."""
    found: list[QueryStateResponse] = []

    def is_there() -> bool:
        try:
            found.append(testing.client.query(key, WANTED))
        except ClientError:
            return False
        return found[-1].checkpoint_id > after and any(value.found for value in found[-1].values)

    testing.wait_until(is_there, f"no query of {key} is answered")
    return found[-1]


def check_order(testing: TestingCluster, key: str, answer: QueryStateResponse) -> None:
    """Asks until three checkpoints have answered: each is no older than the one before."""
    answers = [answer]

    def are_three() -> bool:
        answers.append(testing.client.query(key, WANTED))
        check_together(answers[-1])
        assert answers[-1].checkpoint_id >= answers[-2].checkpoint_id
        return len({each.checkpoint_id for each in answers}) >= 3

    testing.wait_until(are_three, "no new checkpoint answers")
    check_fold(testing, key, answers[-1])


def check_together(answer: QueryStateResponse) -> None:
    """Sequences count from 0, so the highest of a partition at one operator follows from its counts at the other."""
    counts: Counter[int] = Counter()
    for value, (partition, _) in zip(answer.values, KEYS, strict=False):
        counts[partition] += json.loads(value.value)["values"]["n"] if value.found else 0
    for partition, value in enumerate(answer.values[len(KEYS) :]):
        assert json.loads(value.key) == {"partition": partition}
        assert value.found == (counts[partition] > 0)
        assert not value.found or json.loads(value.value) == {"values": {"last": counts[partition] - 1}}


def check_fold(testing: TestingCluster, key: str, answer: QueryStateResponse) -> None:
    """Compares every key with the offsets of the checkpoint, and the operators with each other."""
    check_together(answer)
    assert len(answer.values) == len(KEYS) + PARTITIONS
    (offsets,) = [each for each in testing.client.offsets(key) if each.checkpoint_id == answer.checkpoint_id]
    below = {int(split.split): split.offset for source in offsets.sources for split in source.splits}
    assert set(below) == set(range(PARTITIONS))
    for value, (partition, bucket) in zip(answer.values, KEYS, strict=False):
        assert json.loads(value.key) == {"partition": partition, "bucket": bucket}
        n = (below[partition] - bucket + BUCKETS - 1) // BUCKETS if below[partition] > bucket else 0
        last = bucket + (n - 1) * BUCKETS
        assert value.found == (n > 0)
        assert not n or json.loads(value.value) == {"values": {"n": n, "last": last}}


@pytest.mark.parametrize(
    ("name", "options"),
    [("query-heap", {"full_snapshot_every": 5}), ("query-rocksdb", {"state": "rocksdb"})],
)
def test_a_query_sees_one_cut_before_and_after_the_death_of_the_leader(
    testing: TestingCluster, name: str, options: dict[str, object]
) -> None:
    submit(testing, name, **options)
    first = newest(testing, name)
    check_fold(testing, name, first)
    again = testing.client.query(name, WANTED, first.checkpoint_id)
    assert again == first
    check_order(testing, name, first)
    testing.kill_leader()
    later = newest(testing, name, first.checkpoint_id)
    check_fold(testing, name, later)
    assert testing.client.query(name, WANTED, first.checkpoint_id) == first
    with pytest.raises(ClientError, match="has no checkpoint 999999, or no longer"):
        testing.client.query(name, WANTED, 999_999)
    end(testing, name)
    with pytest.raises(ClientError, match="has no completed checkpoint"):
        testing.client.query(name, WANTED)


def end(testing: TestingCluster, key: str) -> None:
    testing.client.cancel(key)
    has_ended: Callable[[], bool] = lambda: testing.client.job(key).state is JobState.CANCELED  # noqa: E731
    testing.wait_until(has_ended, f"{key} does not end")
