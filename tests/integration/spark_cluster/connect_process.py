"""`python connect_process.py SPEC`: an engine that works in a Spark Connect server, loses it, and says how that looks.

SPEC is JSON: {"master": URL, "work": folder}. Prints `ready`, waits for a line, and tries to go on.
"""

from __future__ import annotations

import json
import sys
from queue import SimpleQueue

from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.task.program import ProgramError

PATIENCE_S = 60.0


def main(text: str) -> int:
    """Prints how the loss of the server looks to the engine."""
    spec = json.loads(text)
    lost: SimpleQueue[str] = SimpleQueue()
    engine = SparkEngine(spec["master"], {}, 1, spec["work"])
    engine.on_death(lost.put)
    plan = engine._new_bench().plan("lines", LeafSpec(Form.TEXT), lambda frame: frame.groupBy().count(), "query")
    plan.run([b"to be\n"])
    print("ready", flush=True)
    sys.stdin.readline()
    for action in (lambda: plan.run([b"or not\n"]), engine._new_bench):
        try:
            action()
        except ProgramError as error:
            print(error)
    print(lost.get(timeout=PATIENCE_S))
    engine.close()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
