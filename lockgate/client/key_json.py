"""Keys of queries as the leader takes them. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from numbers import Integral
from typing import Any

from lockgate.client.errors import ClientError


def key_json(key: Sequence[Any]) -> str:
    """A key, with a value for each key column. Raises ClientError for what is none."""
    if isinstance(key, str | bytes | bytearray | memoryview) or not isinstance(key, Sequence):
        raise ClientError(f"a key is a list with a value for each key column, such as [{key!r}], not {key!r}")
    try:
        return json.dumps(list(key), default=_text)
    except (TypeError, ValueError) as error:
        raise ClientError(f"{key!r} is no key: {error}") from error


def _text(value: Any) -> str:
    """As the task manager reads them. Raises TypeError."""
    match value:
        case Decimal():
            return str(value)
        case date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Integral():  # of numpy
            return str(int(value))
    kind = type(value).__name__
    raise TypeError(f"{value!r}, of type {kind}: give a number, a text, a decimal, a date, a time or bytes")
