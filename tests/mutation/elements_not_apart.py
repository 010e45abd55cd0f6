"""In RocksDB a large key is one row, which every change of an element writes as a whole."""

from __future__ import annotations

from lockgate_taskmanager.state.format import key_payload

key_payload.LARGEST_WHOLE = 1 << 40
