"""JSON that others have written, read in one place: whatever it holds, the answer is a value or one readable error."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

MAX_DEPTH = 200
"""Levels of lists and objects. What walks through a value calls itself several times a level, and Python allows 1,000
calls within each other."""


class JsonError(ValueError):
    """A text is not JSON, or not accepted by Lockgate. The message gives the reason, as the rest of a sentence."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, UTF-8 in bytes. Raises JsonError.

    Also refused: lists and objects more than MAX_DEPTH deep, an object that names a key twice, numbers beyond those of
    a double (and whole ones of thousands of digits), and half of a surrogate pair in a string.
    """
    try:
        read = text if isinstance(text, str) else text.decode()
        value = json.loads(
            read, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite, parse_int=_whole
        )
        if "\\ud" in read.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except JsonError:
        raise
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    except UnicodeEncodeError:
        raise JsonError("a string has half of a surrogate pair") from None
    except UnicodeDecodeError as error:
        raise JsonError("it is not UTF-8 text") from error
    except ValueError as error:
        raise JsonError(f"it is not JSON: {error}") from error
    if read.count("[") + read.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for found in level for item in _items(found) if isinstance(item, dict | list)]
        if not level:
            return
    raise JsonError(_TOO_DEEP)


def _items(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name in found if counts[name] > 1)
        raise JsonError(f"an object has the key {_shown(twice)} twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")) or number != number:
        raise JsonError(f"{_shown(text)} is not a JSON number, or is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > 400:  # more than the largest double has
        raise JsonError(f"{_shown(text)} is too large a number")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
