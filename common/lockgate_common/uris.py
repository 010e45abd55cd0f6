"""Which names of files are URIs. What opens a file and what checks its name have to decide that alike."""

from __future__ import annotations

import re

LOCAL = "file"
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://|(file):", re.ASCII | re.IGNORECASE)


def scheme_of(name: str) -> str:
    """The scheme of a URI, in small letters; "" for a local path, even if it contains `://`."""
    found = _URI.match(name)
    return (found[1] or found[2]).lower() if found else ""
