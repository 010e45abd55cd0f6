"""A process whose JVM is killed while a plan is in use; says whether the closed plan has left anything.

Before that it looks whether all of the JVM, and nothing else, is as nice as it was asked to be.

argv: work folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.leaf import Form, LeafSpec, SlotLeaf
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.session import driver_process
from lockgate_taskmanager.task.program import ProgramError

NICENESS = 2


def _open_below(folder: Path) -> list[str]:
    """Files in the folder, and removed ones that keep their memory while this process has them open."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return [link for link in links if link.startswith(str(folder))]


def _niceness(pid: int) -> set[int]:
    """Of all threads of a process."""
    found = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            found.add(os.getpriority(os.PRIO_PROCESS, int(thread)))
    return found


def main() -> int:
    """0 when nothing is left."""
    folder = Path(sys.argv[1]) / "slots"
    folder.mkdir()
    engine = SparkEngine("local[1]", work_dir=sys.argv[1], niceness=NICENESS)
    leaf = SlotLeaf(engine._session, LeafSpec(Form.TEXT), str(folder / "a.slot"))
    plan = Plan(leaf, lambda frame: frame.selectExpr("upper(value) AS v"), "operator 'o'")
    for _ in range(2):
        plan.run([b"a\n"])
    if len(_open_below(folder)) != 2:
        print("the content and the result are expected to be open:", _open_below(folder))
        return 1
    process = driver_process(engine._session)
    assert process is not None
    here, there = _niceness(os.getpid()), _niceness(process.pid)
    if len(here) > 1 or there != {min(19, *(mine + NICENESS for mine in here))}:
        print(f"the JVM's threads have the niceness {there}, those of this process {here}")
        return 1
    process.kill()
    process.wait()
    try:
        plan.run([b"b\n"])
    except (ProgramError, OSError) as error:  # the latter when Py4J connects again
        print(type(error).__name__, error)
    else:
        return 1
    plan.close()
    plan.close()
    left = [*_open_below(folder), *folder.iterdir()]
    print(left or "nothing left")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
