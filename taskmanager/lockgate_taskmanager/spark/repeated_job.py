"""The Spark job of a plan that is executed again and again, with less around it than `DataFrame.toArrow`.

A micro-batch of some records costs what Spark does for each job, not for its records. `toArrow` starts an SQL execution
(with its description, for Spark's UI), a thread and a socket; and `RDD.collect` has two functions inspected before it
sends them to executors, for which the JVM reads the class files of `RDD` and `SparkContext` each time. Here the job
starts from the RDD that the plan's first execution has made, by `collectAsync`, which needs one small class inspected;
and its result goes through a file in memory. Only for sessions whose executors are in the driver's process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from io import FileIO
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError

LOG = logging.getLogger(__name__)
LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"  # a setting: results would not have our schema
_OBSERVES = "CollectMetrics"  # adds up what `DataFrame.observe` has asked for, until it is reset
_LENGTH_BYTES = 4  # big-endian, in front of each record batch
# Without them Spark searches its stack for the line of the author's program, for every job.
_CALL_SITE = {"callSite.short": "micro-batch", "callSite.long": "micro-batch"}


class _Thread(threading.local):
    """The session whose settings the jobs of this thread run with, and these settings."""

    session: Any = None
    settings: Any = None  # a java.util.Map
    version: int = 0


_thread = _Thread()


class RepeatedJob:
    """One Spark job, executed for every micro-batch. Used from one thread at a time."""

    def __init__(self, frame: Any, schema: pa.Schema, path: str) -> None:
        """frame: classic, executed before; path: for a file that is removed again at once, while it stays open.

        Raises OSError, Py4JError.
        """
        session, jvm = frame.sparkSession, frame.sparkSession.sparkContext._jvm
        self._session = session
        self._schema = schema
        self._folder = os.path.dirname(path)
        self._is_full = False  # there was no room for the last result
        # Looking a method up costs as much as calling it
        self._version = session._jsparkSession.sessionState().conf().settings().hashCode
        executed = frame._jdf.queryExecution().executedPlan()
        self._reset = executed.resetMetrics if _OBSERVES in executed.toString() else None
        self._collect = frame._jdf.toArrowBatchRdd().toJavaRDD().collectAsync
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._write = jvm.org.apache.spark.api.python.PythonRDD.writeIteratorToStream
        self._file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "r+")
        appending = True  # so that it follows when the file is truncated here
        try:
            self._stream = jvm.java.io.DataOutputStream(jvm.java.io.FileOutputStream(path, appending))
        except BaseException:
            self._file.close()
            raise
        finally:
            os.unlink(path)

    def run(self) -> pa.Table:
        """Executes the job. Raises PySparkException, Py4JError, OSError."""
        _set_properties(self._session, self._version())
        if self._reset is not None:
            self._reset()
        batches = self._collect().get()
        self._file.truncate(0)
        try:
            self._write(self._as_scala(batches.iterator()), self._stream)
        except Py4JJavaError as error:
            return self._sent(batches, error)
        self._is_full = False
        return self._read()

    def close(self) -> None:
        """Closes the file, which frees its memory. Idempotent."""
        if not self._file.closed:
            self._file.close()
            with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone, and the stream with it
                self._stream.close()

    def _read(self) -> pa.Table:
        self._file.seek(0)
        batches = []
        while header := self._file.read(_LENGTH_BYTES):
            batch = self._file.read(int.from_bytes(header, "big"))  # in memory of its own, so it is aligned
            batches.append(self._decoded(pa.py_buffer(batch)))
        self._file.truncate(0)  # an idle plan keeps no memory
        return pa.Table.from_batches(batches, self._schema)

    def _sent(self, batches: Any, error: Py4JJavaError) -> pa.Table:
        """The result as text through Py4J, which is slow. Another execution could have another result."""
        self._file.truncate(0)
        if not self._is_full:
            self._is_full = True
            LOG.warning(
                "the result of a micro-batch could not be written to %s (%s); results take a slower way meanwhile; give"
                " the file system more room (in a container: --shm-size)",
                self._folder,
                error.java_exception.getMessage(),
            )
        return pa.Table.from_batches([self._decoded(pa.py_buffer(batch)) for batch in batches], self._schema)

    def _decoded(self, batch: pa.Buffer) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(batch, self._schema)


def clear_properties(context: Any) -> None:
    """Jobs that this thread starts later have no settings of a session's. Raises Py4JError."""
    settings, _thread.session, _thread.settings = _thread.settings, None, None
    if settings is not None:
        context._jsc.sc().getLocalProperties().keySet().removeAll(settings.keySet())


def _set_properties(session: Any, version: int) -> None:
    """Jobs that this thread starts run with the session's settings, as those of an SQL execution do.

    All at once: one call for each of them, when a thread begins, would delay its first micro-batch by tens of
    milliseconds. version: another number after a change of the settings.
    """
    if _thread.session is session and _thread.version == version:
        return
    context, jvm = session.sparkContext, session.sparkContext._jvm
    clear_properties(context)
    now = session._jsparkSession.conf().getAllAsJava()  # a copy: other threads may change them
    settings = jvm.java.util.HashMap(jvm.java.util.TreeMap(now).subMap("spark", "sparl"))  # an author may set others
    for name, value in _CALL_SITE.items():
        settings.put(name, value)
    context._jsc.sc().getLocalProperties().putAll(settings)
    _thread.session, _thread.settings, _thread.version = session, settings, version
