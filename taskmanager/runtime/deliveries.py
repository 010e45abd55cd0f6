"""Grouping of received tables, so that one pass through the program takes many small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


class Deliveries:
    """Remembers which prologues a subtask has seen; several channels bring the same one."""

    def __init__(self) -> None:
        self._prologues: list[tuple[str, pa.Schema]] = []

    def merge(self, received: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
        """(source vertex, table) pairs, fewer of them: tables of one vertex and schema as one, new prologues first."""
        groups: list[tuple[str, pa.Schema, list[pa.Table]]] = []
        for vertex, table in received:
            if table.num_rows == 0:
                if not self._is_known(vertex, table.schema):
                    self._prologues.append((vertex, table.schema))
                    yield vertex, table
                continue
            for known, schema, tables in groups:
                if known == vertex and schema.equals(table.schema):
                    tables.append(table)
                    break
            else:
                groups.append((vertex, table.schema, [table]))
        for vertex, _, tables in groups:
            yield vertex, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _is_known(self, vertex: str, schema: pa.Schema) -> bool:
        return any(known == vertex and seen.equals(schema) for known, seen in self._prologues)
