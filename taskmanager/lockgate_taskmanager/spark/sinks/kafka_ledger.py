"""The topic that records up to which checkpoint a sink's rows are in Kafka: one small record for each commit.

    key = {"job", "run", "operator", "subtask"}, value = checkpoint id        partition 0, compacted

A record is part of the same transaction as the rows, so it exists exactly when they do. A lookup starts at the end of
the topic as it was before the rows were staged, and so reads little, however old the topic is.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.operators import COMMITS_TOPIC

from lockgate_taskmanager.spark.kafka_client import ASK_TIMEOUT_S, Kafka
from lockgate_taskmanager.spark.sinks.transaction import Owner
from lockgate_taskmanager.task.program import Unavailable, UserError

log = logging.getLogger(__name__)

_LONGEST_TRANSACTION_S = 900.0  # what brokers allow unless they are set up otherwise (transaction.max.timeout.ms)
_GRACE_S = 15.0  # they look for transactions that are over every 10 s
_OUTAGE_S = 75.0
_OPEN = (
    "another producer's transaction is open in it, possibly a dead one's, which Kafka ends after its"
    " transaction.timeout.ms"
)
_SAY_AFTER_S = 5.0
_LOOK_S = 0.02
_FETCH_WAIT_MS = 10  # after that time a broker reports that there is nothing more
_CHUNK = 1_000
_SETTINGS = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
_NAME = re.compile(r"([^/]+)/([^/]+)/(\d+)")


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The starting point of the search for a commit's record: cluster, topic and offset."""

    cluster: str
    topic: str
    offset: int

    @property
    def name(self) -> str:
        """All of it as one text, which is stored in snapshots. See `parse`."""
        return f"{self.cluster}/{self.topic}/{self.offset}"

    @staticmethod
    def parse(name: str) -> LedgerPlace | None:
        """The place with that name; None when it is not one."""
        found = _NAME.fullmatch(name)
        return LedgerPlace(found[1], found[2], int(found[3])) if found else None


class KafkaLedger:
    """The commits of each owner, in a topic."""

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        operator_id: str,
        where: str,
        may_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """may_wait: called while `committed` waits; what it raises ends the wait."""
        self._kafka = kafka
        self._may_wait = may_wait
        self._trouble = RecurringLog()
        self._operator_id = operator_id
        self._where = where
        self.topic = topic or COMMITS_TOPIC

    def key(self, owner: Owner) -> bytes:
        """The key of the records of one subtask of one run."""
        fields = {"job": owner.job_key, "run": owner.run_id, "operator": self._operator_id, "subtask": owner.subtask}
        return json.dumps(fields, sort_keys=True).encode()

    def end(self) -> LedgerPlace:
        """The offset at or after which later records will be; creates the topic. Raises UserError.

        Open transactions count as written: their records may become visible later.
        """
        consumer = self._kafka.consumer(**{"isolation.level": "read_uncommitted"})
        try:
            if not self._kafka.partitions(consumer, self.topic):
                self._make(consumer)
            _, end = self._kafka.bounds(consumer, self.topic, 0)
            cluster = consumer.list_topics(self.topic, timeout=ASK_TIMEOUT_S).cluster_id
            return LedgerPlace(cluster or "-", self.topic, end)
        finally:
            consumer.close()

    def committed(self, owner: Owner, since: int, enough: int, *, waits: bool = True) -> int:
        """The highest checkpoint whose rows are committed, 0 for none; any value of `enough` or more is sufficient.

        since: offset to start from; waits: for the end of other open transactions in the topic, as long as Kafka may
        keep one of a dead producer. Raises UserError, Unavailable.
        """
        until = self.end().offset
        if since > until:
            raise self._incomplete()
        consumer = self._kafka.consumer(**{"isolation.level": "read_committed", "fetch.wait.max.ms": _FETCH_WAIT_MS})
        key, highest, reached = self.key(owner), 0, since
        started, patience_s, reason = time.monotonic(), _OUTAGE_S, "no broker answers"
        try:
            consumer.assign([self._kafka.partition(self.topic, 0, since)])
            while reached < until and highest < enough:
                self._may_wait()
                waited_s = time.monotonic() - started
                held_back = (
                    f"{self._where}: the topic {self.topic} could not be read up to offset {until} for"
                    f" {waited_s:.0f} s: {reason}"
                )
                if waited_s > patience_s:
                    raise Unavailable(held_back)
                if waited_s > _SAY_AFTER_S:
                    self._trouble.warning(log, self.topic, "%s", held_back)
                with self._kafka.explained(f"could not read the commits from the topic {self.topic}"):
                    found = consumer.consume(_CHUNK, _LOOK_S)
                notes = [message for message in found if message.error() is None]
                ends = [self._end_at(message.error(), message.offset()) for message in found if message.error()]
                reached = max([reached, *ends, *(message.offset() + 1 for message in notes)])
                highest = max([highest, *(int(message.value()) for message in notes if message.key() == key)])
                if ends and not waits:
                    break
                if max(ends, default=-1) >= 0:  # all that can be read has been
                    patience_s, reason = self._patience_s(), _OPEN
        finally:
            consumer.close()
        return highest

    def _end_at(self, error: Any, offset: int) -> int:
        """The end offset of the readable part of the topic; -1 when the error does not include it."""
        if error.code() == self._kafka.errors._PARTITION_EOF:
            return offset
        if error.code() == self._kafka.errors._AUTO_OFFSET_RESET:
            raise self._incomplete()
        self._kafka.judge(error)
        return -1

    def _incomplete(self) -> UserError:
        return UserError(
            f"{self._where}: the topic {self.topic} has lost records, so it is unknown whether the snapshot's pending"
            " output is in Kafka; the topic must be kept, with cleanup.policy=compact, as long as snapshots are"
        )

    def _patience_s(self) -> float:
        return max(_LONGEST_TRANSACTION_S, self._kafka.transaction_timeout_s) + _GRACE_S

    def _make(self, consumer: Any) -> None:
        try:
            with self._kafka.explained(f"could not create the topic {self.topic}, in which commits are recorded"):
                self._kafka.make_topic(self.topic, 1, _SETTINGS)
        except (UserError, Unavailable):
            if not self._kafka.partitions(consumer, self.topic):  # otherwise another subtask has created it meanwhile
                raise
