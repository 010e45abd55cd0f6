"""The same as `sql_tables`, in PostgreSQL: a server of the example's own, out of the distribution's package."""

from __future__ import annotations

from functools import cache

from examples.frame import Example
from examples.frame.postgresql import PostgresqlServer
from examples.runnable import sql_tables


@cache
def _server() -> PostgresqlServer:
    return PostgresqlServer()


EXAMPLE = Example(
    "rows appended to one PostgreSQL table, totals upserted in another",
    sql_tables.make_input,
    lambda place: sql_tables.pipeline("postgresql tables", place, _server().url()),
    lambda place: sql_tables.check(place, _server().url()),
    beside=_server,
)
