"""Where a call stands that does not come to its end: its Python stack, and what Spark's JVM is doing.

A thread that hangs leaves nothing else to explain it by: cancelling the attempt, or killing the process, removes it.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Any

LOG = logging.getLogger(__name__)

_OURS = "org.apache.spark"
_WAIT_S = 1.0


def log_stacks(what: str, thread: int, context: Any) -> None:
    """Logs both. Waits for the JVM, which what follows may set free, but a second at most: it may not answer.

    what: the beginning of the message; thread: the identifier of the one that runs the call; context: SparkContext,
    None with Spark Connect, whose JVM is on another host.
    """
    frame = sys._current_frames().get(thread)
    stack = "".join(traceback.format_stack(frame)) if frame is not None else "the thread has ended\n"
    LOG.warning("%s; its stack:\n%s", what, stack)
    if context is not None:
        asked = threading.Thread(target=_log_jvm, args=(what, context), name="jvm-stacks", daemon=True)
        asked.start()
        asked.join(_WAIT_S)


def _log_jvm(what: str, context: Any) -> None:
    try:
        LOG.warning("%s; Spark's threads:\n%s", what, "\n".join(_spark_threads(context)))
    except Exception as error:  # the JVM may be gone, or as stuck as the call
        LOG.warning("%s; Spark's threads are not known: %s", what, error)


def _spark_threads(context: Any) -> list[str]:
    """One text for each thread of the JVM that runs Spark's code, with its state, the lock it waits for, its stack."""
    texts = []
    for trace in context._jvm.org.apache.spark.util.Utils.getThreadDump():
        stack = trace.stackTrace().toString()
        if _OURS in stack:
            lock = f", waits for {trace.blockedByLock()}" if trace.blockedByLock() else ""
            texts.append(f"{trace.threadName()}: {trace.threadState().toString()}{lock}\n{stack}")
    return texts
