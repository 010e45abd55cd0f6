"""Handling of records that an operator fails on: `on_error="fail"`, `"skip"` or `dead_letter("bad")`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from lockgate_proto.messages import OnError

from lockgate.pipeline.errors import PipelineError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Failing records go to `job.dead_letters(name)`."""

    name: str


Choice = Literal["fail", "skip"] | DeadLetter


@dataclass(frozen=True, slots=True)
class Way:
    """A choice, as in the graph. dead_letters: the side output, empty for none."""

    on_error: OnError = OnError.ON_ERROR_UNSPECIFIED
    dead_letters: str = ""


PLAIN = Way()


def dead_letter(name: str) -> DeadLetter:
    """Records that an operator fails on go to `job.dead_letters(name)`, and the others are processed.

    >>> prices = job.read_text("in").select("CAST(value AS INT) AS price", on_error=dead_letter("bad"))
    >>> job.dead_letters("bad").write_json("bad-prices")
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "late":
        raise PipelineError(
            f"dead_letter() takes a name of 1 to 64 characters from A-Z a-z 0-9 . _ -, except 'late', not {name!r}"
        )
    return DeadLetter(name)


def way(method: str, choice: Any) -> Way:
    """The author's choice. Raises PipelineError for an invalid one."""
    if isinstance(choice, DeadLetter):
        return Way(OnError.DEAD_LETTER, choice.name)
    if choice == "skip":
        return Way(OnError.SKIP)
    if choice != "fail":
        raise PipelineError(f'{method}(): on_error must be "fail", "skip" or dead_letter("bad"), not {choice!r}')
    return PLAIN
