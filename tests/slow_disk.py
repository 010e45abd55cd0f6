"""A disk on which every sync of some processes takes long: strace delays the system calls of processes that run."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.debian import program

_END_S = 60.0


class SlowSyncs:
    """What has been delayed so far."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    @property
    def count(self) -> int:
        """Syncs that have ended, of all the processes together."""
        return self._trace.read_text(errors="replace").count("(DELAYED)")


@contextlib.contextmanager
def slow_syncs(pids: Sequence[int], seconds: float) -> Iterator[SlowSyncs]:
    """Each fsync and fdatasync of these processes takes so much longer while the block runs."""
    calls = "fsync,fdatasync"
    options = ["-f", "-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter={int(seconds * 1_000_000)}"]
    strace = program("strace", "strace", "LOCKGATE_TEST_STRACE")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        victims = [word for pid in pids for word in ("-p", str(pid))]
        command = [strace, *options, "-o", str(trace), *victims]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            try:
                for pid in pids:
                    _wait_attached(tracer, pid)
                yield SlowSyncs(trace)
            finally:
                tracer.terminate()  # it lets go of them
                tracer.communicate(timeout=_END_S)


def _wait_attached(tracer: subprocess.Popen[str], pid: int) -> None:
    """It says so, once for each process."""
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    assert f"Process {pid} attached" in line, f"strace does not slow {pid} down: {line}"
