"""Where in an SQL text Spark found an error, in words. Pure."""

from __future__ import annotations

import re

_AT = re.compile(r"\bline (\d+),? pos (\d+)")  # of parser and analyzer: the position counts from 0
_QUERY = re.compile(r"^== SQL ==\n(.*?)^-*\^\^\^", re.MULTILINE | re.DOTALL)
_LONGEST = 80


def sql_place(text: str, fragment: str = "") -> str:
    """` (line 2, position 28: partition FROM input WHER ...)`; "" where Spark's message has no position.

    text: Spark's message; fragment: the failing part of the query, where Spark names it.
    """
    found = _AT.search(text)
    if found is None:
        return ""
    query = _QUERY.search(text)
    shown = fragment or (query[1].splitlines()[-1] if query and query[1].strip() else "")
    shown = " ".join(shown.split())
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]} ..."
    return f" (line {found[1]}, position {int(found[2]) + 1}{f': {shown}' if shown else ''})"
