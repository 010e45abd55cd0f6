"""A session in a Spark Connect server, and whether the server still has it.

Left alone, the Connect client tries for ten minutes to reach a server that is gone, and a server forgets a session that
was silent for an hour. A server that was started anew knows none of the old sessions, nor the settings in them.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import PySparkException

from taskmanager.spark.errors import EngineError, is_forgotten, lost_session, sentence
from taskmanager.spark.master import TIMEOUT_S, reach, shown

LOG = logging.getLogger(__name__)
SILENCE_S = 10.0  # a proxy or a network that hiccups; the client's own calls are tried again all the while
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
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:  # PySpark's own error is an ImportError as well
        raise EngineError(f"Spark Connect needs more packages: pip install 'lockgate[connect]' ({error})") from error
    where = shown(master)
    try:
        with DefaultChannelBuilder(master).toChannel() as channel:  # the session itself tries for ten minutes
            grpc.channel_ready_future(channel).result(timeout=TIMEOUT_S)
        builder = SparkSession.builder.remote(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.range(1).count()
    except grpc.FutureTimeoutError as error:
        raise EngineError(f"what listens at {where} does not speak Spark Connect (or its TLS is not ours)") from error
    except Exception as error:  # the Connect client raises gRPC's errors as they are
        known = sentence(error) if isinstance(error, PySparkException) else ""
        line = known or (str(error).splitlines() or [type(error).__name__])[0]
        raise EngineError(f"the Spark Connect server {where} opens no session: {line}") from error
    return session


def queried(frame: DataFrame, query: str, name: str) -> DataFrame:
    """The query over the frame, called `name` in it, without a view of that name in the session.

    It is what `session.sql` makes of `{name}` in a query. A view would hide from the client what is observed behind it.
    """
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
    from pyspark.sql.connect.plan import SQL, SubqueryAlias

    return ConnectFrame(SQL(query, views=[SubqueryAlias(frame._plan, name)]), frame.sparkSession)


def clone_session(session: Session) -> Session:
    """A session of its own in the server, with the same settings. Raises EngineError."""
    import grpc

    try:
        made = session.cloneSession()
        # A server that was started anew would make a bare session of any id. So the new one is bound to this server
        # by its first answer, and then the old one, which was bound long ago, proves that it is still the same server.
        for one in (made, session):
            one.client.get_configs(_ANY_SETTING)
    except (PySparkException, grpc.RpcError) as error:
        raise EngineError(
            lost_session(error) or "the Spark Connect server has made no session of its own for the subtask"
        ) from error
    return made


def end_session(session: Session) -> None:
    """Gives a session back, when the server is there: a server keeps it until it is told, or for an hour."""
    session.client.set_retry_policies([])
    session.stop()


def watch_over(session: Session, master: str) -> ServerWatch:
    """A watch over this session, from a client of its own: it waits behind no data, nor tries again by itself."""
    from pyspark.sql.connect.client import DefaultChannelBuilder, SparkConnectClient
    from pyspark.sql.connect.client.core import RpcDeadlines

    way = DefaultChannelBuilder(master, [("grpc.max_reconnect_backoff_ms", 1_000)])
    way.set(DefaultChannelBuilder.PARAM_SESSION_ID, session.session_id)
    client = SparkConnectClient(connection=way, rpc_deadlines=RpcDeadlines(config=TIMEOUT_S))
    client.set_retry_policies([])
    where = shown(master)
    try:
        client.get_configs(_ANY_SETTING)  # from its first answer on, a client tells this server from the next one
    except Exception as error:
        raise EngineError(f"the Spark Connect server {where} does not answer any more") from error
    return ServerWatch(client, where)


class ServerWatch:
    """Asks the server about one session, and keeps those made from it alive."""

    def __init__(self, client: Any, where: str) -> None:
        """client: of the session; where: the server, for messages."""
        self._client = client
        self._where = where
        self._kept: weakref.WeakSet[Session] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self, on_lost: Callable[[str], object]) -> None:
        """From a thread of its own, calls back once, with a sentence, when nothing can run in the session any more.

        That is when the server does not know it any more, or has not answered for `SILENCE_S`.
        """
        threading.Thread(target=self._watch, args=(on_lost,), name="spark-connect-watch", daemon=True).start()
        threading.Thread(target=self._keep_alive, name="spark-connect-keeper", daemon=True).start()

    def keep(self, session: Session) -> Session:
        """Keeps `session` from expiring for as long as anybody refers to it; returns it."""
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
            except Exception as error:  # gRPC's own as well
                if self._ended.is_set():
                    return
                now = time.monotonic()
                reason = self._reason(error, 0.0 if silent_since is None else now - silent_since)
                if reason:
                    on_lost(reason)
                    return
                if silent_since is None:  # not since the last answer: this process may have slept in between
                    silent_since = now
                    LOG.warning("the Spark Connect server %s does not answer; waiting", self._where)
            else:
                silent_since = None

    def _reason(self, error: Exception, silent_s: float) -> str:
        """Why the session counts as lost; empty while it may still be there."""
        if self._client.is_closed or is_forgotten(error):
            return f"the Spark Connect server {self._where} has lost the session (it was started anew, or has ended it)"
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
                except Exception as error:  # given back just now; a server that is gone is noticed elsewhere
                    LOG.debug("a session could not be kept: %s", error)
