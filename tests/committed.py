"""What a job has made visible in a folder of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Everything that was committed to a folder of Parquet files."""
    return [row for path in sorted(folder.glob("part-*")) for row in pq.read_table(path).to_pylist()]
