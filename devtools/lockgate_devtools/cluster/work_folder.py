"""Temporary folders that are kept after a failure, because they contain the logs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


class WorkFolder:
    """`with WorkFolder("lockgate-drill-", say) as work`: a fresh folder, `work.path`.

    It is removed at the end, unless the block raised an Exception or `keep` was called; then `say` reports where it is.
    An interruption by the user removes it, too.
    """

    def __init__(self, prefix: str, say: Callable[[str], None]) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        self._say = say
        self._keep = False

    def keep(self) -> None:
        """The result is not as expected: keep everything for inspection."""
        self._keep = True

    def __enter__(self) -> WorkFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        failed = self._keep or (kind is not None and issubclass(kind, Exception))
        if failed and any(self.path.rglob("*.log")):
            self._say(f"logs and data are kept in {self.path}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)
