"""Where Spark and its Python workers meet: Unix sockets in a folder of this process.

Over TCP, Spark writes a job's input in small pieces, and a worker its answer. Such a piece waits for the delayed
acknowledgement of the one before, 40 ms on Linux, so that a micro-batch of some records takes 60 ms in place of 20.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from lockgate_taskmanager.state.scratch import ScratchFolder

LOG = logging.getLogger(__name__)
_LONGEST = 103 - len("/.00000000-0000-0000-0000-000000000000.sock")  # macOS takes 103, Linux 107; Spark adds a name
_PREFIX = "lockgate-sockets-"
_ADVICE = (
    "small micro-batches with Python functions take 40 ms longer: set taskmanager.work_dir, or TMPDIR, to a folder with"
    f" a path of less than {_LONGEST - 30} bytes"
)


class WorkerSockets:
    """The folder: Spark's scratch folder, or, if its path is too long, one of its own. Only its user can enter it."""

    def __init__(self, scratch: Path) -> None:
        """scratch: removed by its owner."""
        self._own: ScratchFolder | None = None
        self.settings = self._settings(scratch)
        """Of Spark."""

    def close(self) -> None:
        """Removes a folder of its own. Idempotent."""
        if self._own is not None:
            self._own.close()

    def _settings(self, scratch: Path) -> dict[str, str]:
        folder = scratch
        try:
            if not _fits(folder):
                self._own = ScratchFolder(Path(tempfile.gettempdir()), _PREFIX)
                folder = self._own.path
        except OSError as error:
            LOG.warning("no folder for sockets (%s); %s", error, _ADVICE)
            return {}
        if not _fits(folder):
            LOG.warning("the path %s is too long for sockets; %s", folder, _ADVICE)
            return {}
        return {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(folder),
        }


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= _LONGEST
