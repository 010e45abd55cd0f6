"""Which names of files are URIs, and which local paths the others are.

What opens a file and what checks its name have to decide that alike.
"""

from __future__ import annotations

import os
import re

LOCAL = "file"
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://|(file):", re.ASCII | re.IGNORECASE)


def scheme_of(name: str) -> str:
    """The scheme of a URI, in small letters; "" for a local path, even if it contains `://`."""
    found = _URI.match(name)
    return (found[1] or found[2]).lower() if found else ""


def absolute(name: str) -> str:
    """A local path made absolute (`~` expanded), to mean the same in every process; a URI is unchanged."""
    return name if scheme_of(name) else os.path.abspath(os.path.expanduser(name))
