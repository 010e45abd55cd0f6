"""In RocksDB the elements of a large map or list stay when their key ends or begins anew."""

from __future__ import annotations

from lockgate_taskmanager.state.rows.row_elements import RowElements

RowElements._removed = lambda *_: {}  # type: ignore[method-assign]
