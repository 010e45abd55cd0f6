"""The Spark job of a plan that is executed again and again, with less around it than `DataFrame.toArrow`.

A micro-batch of some records costs what Spark does for each job, not for its records. `toArrow` starts an SQL execution
(with its description, for Spark's UI), a thread and a socket; and `RDD.collect` has two functions inspected before it
sends them to executors, for which the JVM reads the class files of `RDD` and `SparkContext` each time. Here the job
starts from the RDD that the plan's first execution has made, by `collectAsync`, which needs one small class inspected;
and its result goes through a file in memory. Only for sessions whose executors are in the driver's process.
"""

from __future__ import annotations

import contextlib
import os
import threading
from io import FileIO
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError

LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"  # a setting: results would not have our schema
_OBSERVES = "CollectMetrics"  # adds up what `DataFrame.observe` has asked for, until it is reset
_LENGTH_BYTES = 4  # big-endian, in front of each record batch
# Without them Spark searches its stack for the line of the author's program, for every job.
_CALL_SITE = {"callSite.short": "micro-batch", "callSite.long": "micro-batch"}


class _Thread(threading.local):
    """The session whose settings the jobs of this thread run with, and the names of these settings."""

    session: Any = None
    names: frozenset[str] = frozenset()


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
        self._file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "r+")
        appending = True  # so that it follows when the file is truncated here
        try:
            self._stream = jvm.java.io.DataOutputStream(jvm.java.io.FileOutputStream(path, appending))
        finally:
            os.unlink(path)
        # Looking a method up costs as much as calling it
        executed = frame._jdf.queryExecution().executedPlan()
        self._reset = executed.resetMetrics if _OBSERVES in executed.toString() else None
        self._collect = frame._jdf.toArrowBatchRdd().toJavaRDD().collectAsync
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._write = jvm.org.apache.spark.api.python.PythonRDD.writeIteratorToStream

    def run(self) -> pa.Table:
        """Executes the job. Raises PySparkException, Py4JError, OSError."""
        _set_properties(self._session)
        if self._reset is not None:
            self._reset()
        batches = self._collect().get()
        self._file.truncate(0)
        self._write(self._as_scala(batches.iterator()), self._stream)
        return self._read()

    def close(self) -> None:
        """Closes the file, which frees its memory. Idempotent."""
        if not self._file.closed:
            self._file.close()
            with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone, and the stream with it
                self._stream.close()

    def _read(self) -> pa.Table:
        self._file.seek(0)
        content = pa.py_buffer(self._file.readall())
        self._file.truncate(0)  # an idle plan keeps no memory
        batches, position = [], 0
        while position < content.size:
            length = int.from_bytes(content[position : position + _LENGTH_BYTES], "big")
            position += _LENGTH_BYTES
            batches.append(pa.ipc.read_record_batch(content[position : position + length], self._schema))
            position += length
        return pa.Table.from_batches(batches, self._schema)


def _set_properties(session: Any) -> None:
    """Jobs that this thread starts run with the session's settings, as those of an SQL execution do."""
    if _thread.session is session:
        return
    settings = {name: value for name, value in session.conf.getAll.items() if name.startswith("spark")} | _CALL_SITE
    context = session.sparkContext
    for name in _thread.names - settings.keys():
        context.setLocalProperty(name, None)
    for name, value in settings.items():
        context.setLocalProperty(name, value)
    _thread.session, _thread.names = session, frozenset(settings)
