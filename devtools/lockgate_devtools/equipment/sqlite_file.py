"""An SQLite database named by the path of its file, in which `#`, `%` and `?` are ordinary characters."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import URL


def url_of(file: Path) -> str:
    """The URL that a sink opens the file by."""
    return URL.create("sqlite", database=str(file)).render_as_string()


def opened(file: Path) -> sqlite3.Connection:
    """For reading only. Raises sqlite3.Error."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
