"""Text of others as a terminal may show it: what a job says must not move the cursor, or write to the clipboard."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What ends a line somewhere, moves the cursor of a terminal or turns the direction of a text."""


def printable(text: str) -> str:
    """The text with control characters as JSON writes them, but for tabs and ends of lines."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
