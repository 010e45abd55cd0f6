"""The connectors of the runnable example keep their contracts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.frame import Place
from examples.runnable import own_connectors
from examples.runnable.own_connectors import Folder, Tables
from lockgate.testing import check_sink, check_source

pytestmark = pytest.mark.spark


def test_the_source_can_be_replayed(tmp_path: Path) -> None:
    assert own_connectors.EXAMPLE.make_input(Place(tmp_path, tmp_path, 1)) > 100_000
    check_source(lambda: Tables(tmp_path / "orders.db"), rows=100)


def test_the_sink_is_exact(tmp_path: Path) -> None:
    def visible() -> Iterator[dict[str, Any]]:
        for path in tmp_path.glob("*.jsonl"):
            yield from map(json.loads, path.read_text().splitlines())

    check_sink(lambda: Folder(tmp_path), visible, pa.table({"id": range(6), "city": list("abcdef")}))
