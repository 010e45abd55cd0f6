"""Records of a newer version are read as if they were of this one."""

from __future__ import annotations

from lockgate_ha import records

assert hasattr(records, "is_newer")
records.is_newer = lambda _format: False
