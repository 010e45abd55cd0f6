"""The Kafka client of sources and sinks, based on librdkafka: the only module that imports confluent_kafka.

Errors that a restart may resolve (brokers are down, a leader election) become Unavailable; permanent ones (a wrong
password, a missing permission or topic) UserError; a record that is too large becomes a DataError.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from lockgate_common.masking import is_secret_name

from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.variables import filled
from lockgate_taskmanager.task.program import DataError, ProgramError, Unavailable, UserError

LOG = logging.getLogger(__name__)
ASK_TIMEOUT_S = 10.0
_MOST_RECORD_BYTES, _TRANSACTION_TIMEOUT_MS = "1000000", "60000"  # librdkafka's defaults
_FILE = re.compile(r"location|path|file|keytab")
_NEVER_SHOWN = ("ssl.ca.location", "https.ca.location")  # certificates of authorities
_LASTING = (  # names of KafkaError's codes
    "_AUTHENTICATION",
    "_INVALID_ARG",
    "_SSL",
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "ILLEGAL_SASL_STATE",
    "INVALID_TRANSACTION_TIMEOUT",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNSUPPORTED_SASL_MECHANISM",
)
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
_PASSING = ("_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT")


def package() -> ModuleType:
    """confluent_kafka. Raises UserError with instructions when it is missing."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise UserError("Kafka needs the package confluent-kafka on every task manager: pip install 'lockgate[kafka]'")
    import confluent_kafka

    return confluent_kafka


class Kafka:
    """The brokers of one operator. Makes clients and turns their errors into sentences."""

    def __init__(self, servers: str, options: Mapping[str, str], where: str, limits: Limits = UNLIMITED) -> None:
        """options: librdkafka's, from the author; where: the operator's name in messages. Raises UserError."""
        self._package = package()
        self._where = where
        self._options = filled(options, where, limits)
        for name, value in self._options.items():
            if _FILE.search(name) and name not in _NEVER_SHOWN:
                limits.check_path(value, f"{where}: the file of the option {name}")
        self._servers = servers
        self._lasting = tuple(getattr(self._package.KafkaError, name) for name in _LASTING)
        self._too_large = tuple(getattr(self._package.KafkaError, name) for name in _TOO_LARGE)
        self._passing = tuple(getattr(self._package.KafkaError, name) for name in _PASSING)
        self._complaint = ""

    @property
    def errors(self) -> Any:
        """KafkaError, whose attributes are the codes."""
        return self._package.KafkaError

    @property
    def most_record_bytes(self) -> int:
        """What librdkafka lets a record have, with its own overhead. Of options that a client was made with."""
        return int(self._options.get("message.max.bytes", _MOST_RECORD_BYTES), 0)

    @property
    def transaction_timeout_s(self) -> float:
        """After which Kafka aborts a transaction of these options. Of options that a client was made with."""
        return int(self._options.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS), 0) / 1000

    def consumer(self, **settings: Any) -> Any:
        """A consumer that commits nothing, reads committed records only and never resets its offset.

        Raises UserError.
        """
        ours = {
            "group.id": "lockgate",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,  # librdkafka's default is a pause of one second when a reader falls behind
            **self._options,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **settings,
        }
        return self._made(self._package.Consumer, ours)

    def producer(self, **settings: Any) -> Any:
        """A producer that keeps order and does not duplicate. Raises UserError."""
        ours = {
            "partitioner": "murmur2_random",  # the partitioner of the Java clients, and so of Spark
            "linger.ms": 5,
            **self._options,
            "enable.idempotence": True,
            **settings,
        }
        return self._made(self._package.Producer, ours)

    def make_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Creates a topic. Raises KafkaException, also when it exists already; UserError."""
        from confluent_kafka import admin

        client = self._made(admin.AdminClient, self._options)
        wanted: Any = admin.NewTopic(topic, num_partitions=partitions, config=dict(settings))  # type: ignore[attr-defined]
        (made,) = client.create_topics([wanted], request_timeout=ASK_TIMEOUT_S).values()
        made.result()

    def partition(self, topic: str, number: int, offset: int = -1001) -> Any:
        """A TopicPartition."""
        return self._package.TopicPartition(topic, number, offset)

    def partitions(self, client: Any, topic: str) -> tuple[int, ...]:
        """The numbers of a topic's partitions, none when it does not exist. Raises UserError, Unavailable.

        client: a consumer without an assignment.
        """
        with self.explained(f"did not describe the topic {topic}"):
            try:
                found = client.list_topics(topic, timeout=ASK_TIMEOUT_S).topics[topic]
            except self._package.KafkaException:
                client.poll(0)  # receives the reason, see `_noted`
                raise
        if found.error is not None and found.error.code() != self.errors.UNKNOWN_TOPIC_OR_PART:
            raise self.failed(f"did not describe the topic {topic}", found.error)
        return tuple(sorted(found.partitions))

    def bounds(self, consumer: Any, topic: str, number: int) -> tuple[int, int]:
        """A partition's first offset, and the one after its last record. Raises UserError, Unavailable."""
        with self.explained(f"did not return the offsets of the topic {topic}"):
            low, high = consumer.get_watermark_offsets(self.partition(topic, number), timeout=ASK_TIMEOUT_S)
            return int(low), int(high)

    def known_end(self, consumer: Any, topic: str, number: int) -> int | None:
        """The offset after a partition's last record as the newest answer had it; None: not known. Sends no request."""
        found = consumer.get_watermark_offsets(self.partition(topic, number), cached=True)
        return int(found[1]) if found is not None and found[1] >= 0 else None  # librdkafka's marks are negative

    @contextmanager
    def explained(self, problem: str) -> Iterator[None]:
        """Turns librdkafka's exceptions inside the block into UserError or Unavailable.

        problem: the predicate after "Kafka".
        """
        try:
            yield
        except self._package.KafkaException as error:
            raise self.failed(problem, error.args[0]) from error

    def failed(self, problem: str, error: Any) -> ProgramError:
        """The exception to raise for a KafkaError."""
        text = _plain(error.str() or error.name())
        if self._complaint and self._complaint not in text:
            text = f"{text} ({self._complaint})"
        sentence = f"{self._where}: Kafka at {self._servers} {problem}: {text}"
        if error.code() in self._too_large:
            return DataError(sentence)
        return UserError(sentence) if error.code() in self._lasting else Unavailable(sentence)

    def has_timed_out(self, error: Exception) -> bool:
        """Whether the same call goes on where it was."""
        found = error.args[0] if isinstance(error, self._package.KafkaException) else None
        return found is not None and found.code() == self.errors._TIMED_OUT and found.retriable()

    def judge(self, error: Any) -> None:
        """Raises the error of a consumer, unless librdkafka recovers from it automatically."""
        if error.fatal() or not (error.retriable() or error.code() in self._passing):
            raise self.failed("cannot be read", error)
        LOG.info("%s: Kafka at %s: %s", self._where, self._servers, _plain(error.str()))

    def _made(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        config = {**settings, "bootstrap.servers": self._servers, "error_cb": self._noted, "log_level": 0}
        try:
            return kind(config)
        except (self._package.KafkaException, TypeError, ValueError) as error:
            found = error.args[0] if error.args else error
            text = found.str() if hasattr(found, "str") else str(found)
            for name, value in self._options.items():
                if is_secret_name(name) and value:
                    text = text.replace(value, "***")
            raise UserError(f"{self._where}: the options for Kafka are wrong: {_plain(text)}") from None

    def _noted(self, error: Any) -> None:
        """librdkafka reports failed connections and retries; its messages explain later errors."""
        self._complaint = _plain(error.str())
        LOG.debug("%s: Kafka at %s: %s", self._where, self._servers, self._complaint)


def _plain(text: str) -> str:
    return " ".join(text.split())
