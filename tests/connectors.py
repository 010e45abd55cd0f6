"""A source and a sink such as authors write, for tests of the kit and of the task manager."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lockgate import CustomSink, CustomSource, Transaction


class Squares(CustomSource):
    """Splits a, b ... of so many rows (split, n, square). An offset counts rows."""

    schema = "split STRING, n BIGINT, square BIGINT"

    def __init__(self, *ends: int | None, form: str = "arrow") -> None:
        self.ends = {chr(ord("a") + number): end for number, end in enumerate(ends)}
        self.form = form

    def splits(self) -> Mapping[str, int | None]:
        return self.ends

    def read(self, split: str, start: int, end: int) -> Any:
        columns = {
            "square": [n * n for n in range(start, end)],
            "n": list(range(start, end)),
            "split": [split] * (end - start),
        }
        if self.form == "pandas":
            import pandas as pd

            return pd.DataFrame(columns)
        if self.form == "spark":
            from pyspark.sql import SparkSession

            frame = SparkSession.active().range(start, end, 1, 1)
            return frame.selectExpr(f"'{split}' AS split", "id AS n", "id * id AS square")
        return pa.table(columns)


class JsonFolder(CustomSink):
    """A file of JSON lines for each transaction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        (self.folder / "staged").mkdir(parents=True, exist_ok=True)

    def stage(self, transaction: Transaction, rows: pa.Table) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in rows.to_pylist())
        self.place(transaction).write_text(lines)

    def commit(self, transaction: Transaction) -> None:
        if self.place(transaction).exists():
            os.replace(self.place(transaction), self.folder / transaction.name)

    def abort(self, transaction: Transaction) -> None:
        self.place(transaction).unlink(missing_ok=True)

    def staged(self) -> Iterable[str]:
        return sorted(path.name for path in (self.folder / "staged").iterdir())

    def place(self, transaction: Transaction) -> Path:
        """Where it is staged."""
        return self.folder / "staged" / transaction.name

    def visible(self) -> list[dict[str, Any]]:
        """What a consumer finds."""
        files = [path for path in self.folder.glob("*") if path.is_file()]
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]
