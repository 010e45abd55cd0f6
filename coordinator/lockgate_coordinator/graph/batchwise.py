"""Recognises SQL whose result depends on the micro-batch, although its author may mean the stream.

A transform sees one micro-batch at a time, of any size. That makes no difference to a query that treats each row alone.
Only Spark knows whether a query does; here it is guessed from keywords, which is good enough for a warning.
"""

from __future__ import annotations

import re

# An unclosed part extends to the end, so that a text is scanned once, however many parts it opens.
_QUOTED = r"{0}(?:[^{0}\\]|\\(?:.|\Z))*+(?:{0}|\Z)"
_ASIDE = re.compile(
    "|".join((_QUOTED.format("'"), _QUOTED.format('"'), r"`[^`]*+(?:`|\Z)", r"--[^\n]*", r"/\*.*?(?:\*/|\Z)")),
    re.DOTALL,
)
_WORDS = (
    ("GROUP BY", re.compile(r"\bGROUP\s+BY\b", re.IGNORECASE)),
    ("DISTINCT", re.compile(r"\bSELECT\s+DISTINCT\b", re.IGNORECASE)),
    ("a window function", re.compile(r"\bOVER\s*\(", re.IGNORECASE)),
    ("LIMIT", re.compile(r"\bLIMIT\s+\d", re.IGNORECASE)),
    (
        "an aggregate",
        re.compile(r"\b(AVG|COLLECT_LIST|COLLECT_SET|COUNT|COUNT_IF|MAX|MEAN|MIN|SUM)\s*\(", re.IGNORECASE),
    ),
)


def spans_rows(query: str) -> str:
    """The first construct in the query that spans several rows, in the author's terms; "" for none."""
    text = _ASIDE.sub(" ", query)
    return next((name for name, pattern in _WORDS if pattern.search(text)), "")
