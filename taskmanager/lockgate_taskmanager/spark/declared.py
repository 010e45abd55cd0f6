"""Columns that a job declares, in Spark's DDL."""

from __future__ import annotations

import re

from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.spark.leaf import DataFrame, Session
from lockgate_taskmanager.task.program import UserError

_NAMES_AND_TEXTS = re.compile(r"`[^`]*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_OF_TABLES = re.compile(r"\b(?:CHAR|CHARACTER|VARCHAR)\s*\(\s*\d+\s*\)", re.IGNORECASE)


def declared_frame(session: Session, ddl: str, owner: str) -> DataFrame:
    """An empty frame with the columns. owner: the owner of the declaration, for messages.

    Raises UserError for invalid DDL.
    """
    # Spark allows these types in tables only, and refuses them elsewhere with an internal error.
    found = _OF_TABLES.search(_NAMES_AND_TEXTS.sub("", ddl))
    if found:
        raise UserError(f"{owner} '{ddl}' is wrong: {found[0]} is a type for table columns only; use STRING")
    with explained(f"{owner} '{ddl}' is wrong"):
        frame = session.createDataFrame([], ddl)
        frame.columns  # noqa: B018  Spark Connect analyzes only when asked
        return frame
