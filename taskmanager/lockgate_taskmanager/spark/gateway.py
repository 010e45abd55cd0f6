"""Starts Spark's JVM, at another niceness than this process if that is wanted.

Linux keeps the niceness of each thread, and a process inherits that of the thread that starts it. Without privileges it
can only rise. So the JVM is started by a thread of its own, which then ends. What else that thread starts is PySpark's
thread that tells the JVM which objects are not used any more: it may wait as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pyspark import java_gateway

Gateway = Any  # py4j.clientserver.ClientServer
_HIGHEST = 19


def launched(conf: Any, niceness: int) -> Gateway:
    """PySpark's gateway to a new JVM. Raises what PySpark raises when it does not start.

    conf: a SparkConf; niceness: added to that of this thread.
    """
    start: Callable[[Any], Gateway] = java_gateway.launch_gateway
    if not niceness:
        return start(conf)
    gateway: Future[Gateway] = Future()

    def launch() -> None:
        try:
            thread = threading.get_native_id()
            mine = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, min(mine + niceness, _HIGHEST))
            gateway.set_result(start(conf))
        except BaseException as error:
            gateway.set_exception(error)

    threading.Thread(target=launch, name="spark-jvm-start", daemon=True).start()
    return gateway.result()
