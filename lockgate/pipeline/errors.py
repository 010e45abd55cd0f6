"""An error of a pipeline's author, and its location."""

from __future__ import annotations

import sys
from types import FrameType

from lockgate.errors import UserError

_OWN_PACKAGE = __name__.partition(".")[0]


class PipelineError(UserError):
    """An error in a pipeline. `str()` starts with the author's own file and line."""

    def __init__(self, message: str, where: str | None = None) -> None:
        self.message = message
        self.where = call_site() if where is None else where
        super().__init__(f"{self.where}: {message}" if self.where else message)


def call_site() -> str:
    """`file:line` of the nearest caller outside this package, or empty."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != _OWN_PACKAGE:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
