"""What the author's Python code raised, and in which line. Also used in Spark's Python workers.

A frame is the author's unless it belongs to Python, to an installed package or to Lockgate. The last one counts: what a
library raises is blamed on the line that called it.
"""

from __future__ import annotations

import re
import traceback
from pathlib import PurePath

_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_NOT_THE_AUTHORS = re.compile(
    r"^<frozen|/(site-packages|dist-packages|python3\.\d+|pyspark\.zip|python/pyspark|lockgate_taskmanager)/"
)


def raised(error: BaseException) -> str:
    """The sentence for an exception."""
    frames = [(frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    return raised_text(f"{type(error).__name__}: {error}", frames)


def raised_in(text: str, error: str) -> str:
    """The sentence for a message that contains a traceback. error: type and text of the exception, as found in it."""
    last = text.rpartition(_TRACEBACK)[2]
    return raised_text(error, [(file, int(line), name) for file, line, name in _FRAME.findall(last)])


def raised_text(error: str, frames: list[tuple[str, int, str]]) -> str:
    """frames: (file, line, function), outermost first."""
    own = [frame for frame in frames if _is_authors(frame[0])]
    place = ""
    if own:
        file, line, name = own[-1]
        place = f" (line {line} of {PurePath(file).name}{'' if name.startswith('<') else f', in {name}'})"
    return f"the Python function raised {error}{place}"


def _is_authors(file: str) -> bool:
    return not _NOT_THE_AUTHORS.search(file)
