"""One child process: start, log, ready line and end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lockgate_devtools.cluster.errors import ClusterError

_READY = re.compile(r"^lockgate \w+ ready: (.*)$")
_LOG_LINES = 15


class ChildProcess:
    """A started process in its own process group, with its output in `log`.

    stdin_text: what it reads from its standard input.
    `on_change(child)` is called on threads of this object when the ready line has come and when the process has
    ended; it must return fast.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        on_change: Callable[[ChildProcess], None],
        stdin_text: str = "",
    ) -> None:
        self.name = name
        self.log = log
        self.ready: Mapping[str, str] | None = None
        self.started_at = time.monotonic()
        self._on_change = on_change
        try:
            log.touch(0o600)
            self._file = log.open("ab")
            self._log_start = self._file.tell()
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._file,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except OSError as error:
            raise ClusterError(f"cannot start {name}: {error.strerror} ({error.filename or log})") from error
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._popen.stdin as stdin:  # it may have ended
            stdin.write(stdin_text.encode())
        self._threads = [
            threading.Thread(target=self._read_output, name=f"{name}-output", daemon=True),
            threading.Thread(target=self._await_end, name=f"{name}-end", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The process id, also the id of its process group."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -N when signal N ended it."""
        return self._popen.returncode

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._popen.returncode is None

    @property
    def main_pid(self) -> int:
        """The main process: the one named in the ready line (ZooKeeper's JVM), otherwise `pid`."""
        return int((self.ready or {}).get("pid", self.pid))

    def send(self, number: int) -> None:
        """Sends a signal to the main process only. Does nothing when it has ended."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.main_pid, number)

    def terminate(self) -> None:
        """Asks it to end; a stopped process is resumed first, since it could not react otherwise."""
        for pid in {self.pid, self.main_pid} if self.is_running else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill_group(self) -> None:
        """SIGKILL for the process and its children (JVM, Python workers)."""
        for pid in {self.pid, self.main_pid}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def join(self, timeout_s: float) -> bool:
        """Waits for the end of the process; True when it has ended."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Kills the rest of the process group and releases files and threads. Idempotent."""
        if self._file.closed:
            return
        self.kill_group()
        self._popen.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=5)
        self._file.close()

    def end_text(self) -> str:
        """How it ended, for people."""
        code = self.exit_code or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def failure_text(self) -> str:
        """Why it ended or is not ready: its own `error:` line, otherwise the last lines of its log."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(self._log_start)
            lines = file.read().decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if line.startswith("error: ")]
            if errors:
                return errors[-1].removeprefix("error: ")
            last = "\n".join(f"    {line}" for line in lines[-_LOG_LINES:])
            return f"the last lines of {self.log}:\n{last}" if last else f"it wrote nothing to {self.log}"
        return f"its log {self.log} cannot be read"

    def _read_output(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as output:
            for line in output:
                with contextlib.suppress(OSError, ValueError):  # a full disk must not block the child
                    self._file.write(line)
                    self._file.flush()
                found = _READY.match(line.decode("utf-8", "replace").strip())
                if found and self.ready is None:
                    self.ready = dict(part.split("=", 1) for part in found.group(1).split() if "=" in part)
                    self._on_change(self)

    def _await_end(self) -> None:
        self._popen.wait()
        self._on_change(self)
