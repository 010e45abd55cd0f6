"""A session on a Spark Connect server, and a check whether the server still has it.

By default the Connect client retries for ten minutes when a server is gone, and a server drops a session after an hour
without requests. A restarted server has none of the old sessions, nor their settings.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from lockgate_proto.rpc import NO_RETRIES
from pyspark.errors import PySparkException

from lockgate_taskmanager.spark.errors import EngineError, is_forgotten, lost_session, sentence
from lockgate_taskmanager.spark.master import TIMEOUT_S, masked, reach

LOG = logging.getLogger(__name__)
SILENCE_S = 10.0  # a proxy or a network with short interruptions; the client's own calls are retried all the while
_LOOK_EVERY_S = 1.0
_KEEP_EVERY_S = 60.0
_ANY_SETTING = "spark.sql.session.timeZone"

Session = Any  # pyspark.sql.connect.session.SparkSession
DataFrame = Any


def open_session(master: str, settings: Mapping[str, str]) -> Session:
    """A session in the server at `sc://HOST:PORT`. Raises EngineError, one sentence, soon."""
    reach(master)
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:  # PySpark's own error is an ImportError, too
        raise EngineError(f"Spark Connect needs more packages: pip install 'lockgate[connect]' ({error})") from error
    where = masked(master)
    try:
        way = DefaultChannelBuilder(master, [NO_RETRIES])
        with way.toChannel() as channel:  # the session itself retries for ten minutes
            grpc.channel_ready_future(channel).result(timeout=TIMEOUT_S)
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as PySpark's own builder does, which takes no channel
        builder = SparkSession.builder.channelBuilder(way)
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.range(1).count()
    except grpc.FutureTimeoutError as error:
        raise EngineError(f"the server at {where} does not speak Spark Connect (or its TLS settings differ)") from error
    except Exception as error:  # the Connect client raises gRPC errors unchanged
        known = sentence(error) if isinstance(error, PySparkException) else ""
        line = known or (str(error).splitlines() or [type(error).__name__])[0]
        raise EngineError(f"the Spark Connect server {where} cannot open a session: {line}") from error
    return session


def queried(frame: DataFrame, query: str, name: str) -> DataFrame:
    """The query over the frame, named `name` in it, without a view of that name in the session.

    It is what `session.sql` makes of `{name}` in a query. A view would hide observations made behind it from the
    client.
    """
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
    from pyspark.sql.connect.plan import SQL, SubqueryAlias

    return ConnectFrame(SQL(query, views=[SubqueryAlias(frame._plan, name)]), frame.sparkSession)


def clone_session(session: Session) -> Session:
    """A new session on the server with the same settings. Raises EngineError."""
    import grpc

    try:
        made = session.cloneSession()
        # A restarted server would make a session without settings for any id. So the new session is bound to this
        # server by its first answer, and then the old one, which was bound earlier, proves that it is still the same
        # server.
        for checked in (made, session):
            checked.client.get_configs(_ANY_SETTING)
    except (PySparkException, grpc.RpcError) as error:
        raise EngineError(
            lost_session(error) or "the Spark Connect server has not created a separate session for the subtask"
        ) from error
    return made


def end_session(session: Session) -> None:
    """Releases a session, if the server is there: otherwise the server keeps it for an hour."""
    session.client.set_retry_policies([])
    session.stop()


def watch_over(session: Session, master: str) -> ServerWatch:
    """A watch over this session, with its own client: it is not blocked behind data and does not retry."""
    from pyspark.sql.connect.client import DefaultChannelBuilder, SparkConnectClient
    from pyspark.sql.connect.client.core import RpcDeadlines

    way = DefaultChannelBuilder(master, [("grpc.max_reconnect_backoff_ms", 1_000), NO_RETRIES])
    way.set(DefaultChannelBuilder.PARAM_SESSION_ID, session.session_id)
    client = SparkConnectClient(connection=way, rpc_deadlines=RpcDeadlines(config=TIMEOUT_S))
    client.set_retry_policies([])
    where = masked(master)
    try:
        client.get_configs(_ANY_SETTING)  # from its first answer on, a client can tell this server from its successor
    except Exception as error:
        raise EngineError(f"the Spark Connect server {where} no longer answers") from error
    return ServerWatch(client, where)


class ServerWatch:
    """Asks the server about one session, and keeps the sessions cloned from it alive."""

    def __init__(self, client: Any, where: str) -> None:
        """client: of the session; where: the server, in messages."""
        self._client = client
        self._where = where
        self._kept: weakref.WeakSet[Session] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self, on_lost: Callable[[str], object]) -> None:
        """Starts a thread that calls back once, with a sentence, when the session is no longer usable: the server does
        not have it any more, or has not answered for `SILENCE_S`.
        """
        threading.Thread(target=self._watch, args=(on_lost,), name="spark-connect-watch", daemon=True).start()
        threading.Thread(target=self._keep_alive, name="spark-connect-keeper", daemon=True).start()

    def keep(self, session: Session) -> Session:
        """Keeps `session` from expiring as long as it is referenced; returns it."""
        with self._lock:
            self._kept.add(session)
        return session

    def close(self) -> None:
        """Ends the watch. Idempotent."""
        if not self._ended.is_set():
            self._ended.set()
            self._client.close()

    def _watch(self, on_lost: Callable[[str], object]) -> None:
        silent_since: float | None = None
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                self._client.get_configs(_ANY_SETTING)
            except Exception as error:  # gRPC's own errors, too
                if self._ended.is_set():
                    return
                now = time.monotonic()
                reason = self._reason(error, 0.0 if silent_since is None else now - silent_since)
                if reason:
                    on_lost(reason)
                    return
                # not measured since the last answer: this process may have been suspended in between
                if silent_since is None:
                    silent_since = now
                    LOG.warning("the Spark Connect server %s does not answer; waiting", self._where)
            else:
                silent_since = None

    def _reason(self, error: Exception, silent_s: float) -> str:
        """Why the session counts as lost; empty while it may still exist."""
        if self._client.is_closed or is_forgotten(error):
            return f"the Spark Connect server {self._where} has lost the session (it was restarted, or has ended it)"
        if silent_s >= SILENCE_S:
            return f"the Spark Connect server {self._where} has not answered for {SILENCE_S:g} s"
        return ""

    def _keep_alive(self) -> None:
        while not self._ended.wait(_KEEP_EVERY_S):
            with self._lock:
                kept = tuple(self._kept)
            for session in kept:
                try:
                    session.client.get_configs(_ANY_SETTING)
                except Exception as error:  # just released; a server that is gone is detected elsewhere
                    LOG.debug("a session could not be kept: %s", error)
