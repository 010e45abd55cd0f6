"""A process whose Spark is broken in the way that its argument names; prints what it notices of that.

argv: work folder, "context" or "blocks", "idle" or "failure".
"""

from __future__ import annotations

import sys
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from lockgate_taskmanager.spark import health
from lockgate_taskmanager.spark.engine import SparkEngine
from py4j.protocol import Py4JError

WAIT_S = 300.0


def _stop_blocks(jvm: Any, env: Any) -> None:
    """SparkEnv.get.blockManager.stop(), through handles: PySpark's jars lack classes that plain reflection asks for."""
    names = ("org.apache.spark.SparkEnv", "org.apache.spark.storage.BlockManager")
    of_env, of_blocks = (jvm.java.lang.Class.forName(name) for name in names)
    handles, types = jvm.java.lang.invoke.MethodHandles.publicLookup(), jvm.java.lang.invoke.MethodType
    blocks = _call(jvm, handles.findVirtual(of_env, "blockManager", types.methodType(of_blocks)), env)
    _call(jvm, handles.findVirtual(of_blocks, "stop", types.methodType(jvm.java.lang.Void.TYPE)), blocks)


def _call(jvm: Any, handle: Any, target: Any) -> Any:
    arguments = jvm.java.util.ArrayList()
    arguments.add(target)
    return handle.invokeWithArguments(arguments)


def main() -> int:
    """0 when the loss was noticed, 1 when Spark counts as well."""
    folder, how, noticed = sys.argv[1:]
    if noticed == "idle":
        health.IDLE_S = 0.1
    engine = SparkEngine("local[1]", work_dir=folder)
    lost: SimpleQueue[str] = SimpleQueue()
    engine.on_death(lost.put)
    engine.warm_up()
    context = engine._session.sparkContext._jsc.sc()
    if how == "blocks":
        _stop_blocks(engine._session._jvm, context.env())
    else:
        with suppress(OSError, Py4JError):  # it may be noticed before this returns
            context.stop()
    if noticed == "failure":
        engine.suspect()
    print(lost.get(timeout=WAIT_S), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
