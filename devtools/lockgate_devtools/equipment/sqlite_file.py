"""An SQLite database named by the path of its file, in which `#`, `%` and `?` are ordinary characters."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import URL, make_url

from lockgate.errors import UserError


def url_of(file: Path) -> str:
    """The URL that a sink opens the file by. Raises UserError where this version of SQLAlchemy has none for it."""
    wanted = URL.create("sqlite", database=str(file))
    url = wanted.render_as_string(hide_password=False)
    if make_url(url) != wanted:  # before 2.1 it did not quote a path
        raise UserError(f"no database URL can name {file}; choose a folder without ? in its path")
    return url


def opened(file: Path) -> sqlite3.Connection:
    """For reading only. Raises sqlite3.Error."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
