"""Keys of queries as the leader takes them. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from lockgate.client.errors import ClientError


def key_json(key: Sequence[Any]) -> str:
    """A key, with a value for each key column. Raises ClientError for what is none."""
    if isinstance(key, str | bytes | bytearray | memoryview) or not isinstance(key, Sequence):
        raise ClientError(f"a key is a list with a value for each key column, such as [{key!r}], not {key!r}")
    try:
        return json.dumps([_plain(value) for value in key], default=_text, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ClientError(f"{key!r} is no key: {error}") from error


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are texts, as in answers."""
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Any) -> str | bool:
    """As the task manager reads them. Raises TypeError."""
    match value:
        case Decimal():
            return str(value)
        case date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return value.hex()
        case Integral():  # of numpy
            return str(int(value))
        case Real():  # of numpy: all digits that it has
            return str(float(value))
        case object(dtype=object(kind="b"), shape=()):  # of numpy, where it is no number
            return bool(value)
    kind = type(value).__name__
    raise TypeError(f"{value!r}, of type {kind}: give a number, a text, a decimal, a date, a time or bytes")
