"""A request that is refused, and the JSON in which that is said."""

from __future__ import annotations

import json


class HttpRefusal(Exception):
    """status: of HTTP; `str()`: one sentence for the caller."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def error_body(sentence: str) -> bytes:
    """Every error has this shape."""
    return json.dumps({"error": sentence}).encode() + b"\n"
