"""Column names that Lockgate gives itself, beside those of the author's, and that no column of an author may have.

New ones begin with `__lockgate_`. The others are older, and stand in stored state.
"""

from __future__ import annotations

import re

_RESERVED = re.compile(
    r"__(lockgate_.*|hash|rows|pane|event_time|first|last|p\d+|kg_\d+|key|payload|event|wall|expiry|watermark|now)",
    re.IGNORECASE | re.DOTALL,
)
_RESERVED_KEYS = re.compile(r"__(deleted|base)", re.IGNORECASE)  # in state, beside keys


def is_reserved(name: str, *, is_key: bool = False) -> bool:
    """Whether a column must not be called so. is_key: it is a key, or beside keys in state."""
    return bool(_RESERVED.fullmatch(name) or (is_key and _RESERVED_KEYS.fullmatch(name)))
