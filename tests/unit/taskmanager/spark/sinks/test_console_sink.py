"""What is particular to the sink that prints."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from lockgate_proto.messages import ConsoleSink
from lockgate_taskmanager.spark.sinks.console import ConsoleSink as ConsoleWriter

from tests.unit.taskmanager.spark.sink_rows import context, rows

pytestmark = pytest.mark.usefixtures("processes_apart")


def test_the_console_shows_the_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleWriter(context(), ConsoleSink(rows=2))
    sink.write(rows(("a", 1), ("b", 2), ("c", 3)))
    printed = capsys.readouterr().out
    assert "3 rows" in printed
    assert "b" in printed.split("\n")[3]
    assert "... 1 more rows" in printed
    assert sink.seal(1) == ()


def test_the_console_shows_every_value_exactly_on_a_line_of_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    days, moment = pa.date32(), pa.timestamp("us")
    columns = [
        (pa.array([2**53 + 1, None]), str(2**53 + 1)),
        (pa.array([2_932_897, None], days), "+10000-01-01"),
        (pa.array([2**63 - 1, None], moment), "+294247-01-10T04:00:54.775807"),
        (pa.array([0, None], pa.timestamp("us", "UTC")), "1970-01-01T00:00:00.000000Z"),
        (pa.array([[2_932_897, None], None], pa.list_(days)), "[+10000-01-01, NULL]"),
        (pa.array([{"a": 1, "d": 2_932_897}, None], pa.struct([("a", pa.int64()), ("d", days)])), "{1, +10000-01-01}"),
        (pa.array([[("a", 1), ("b", None)], None], pa.map_(pa.string(), days)), "{a -> 1970-01-02, b -> NULL}"),
        (pa.array([Decimal("1.10"), None]), "1.10"),
        (pa.array([1.5, None]), "1.5"),
        (pa.array([True, None]), "True"),
        (pa.array(["a\nb\x1b[2J", None]), "a\\nb\\u001b[2J"),
        (pa.array([b"\xff", None]), r"b'\xff'"),
    ]
    ConsoleWriter(context(), ConsoleSink()).write(pa.Table.from_arrays([a for a, _ in columns], ["x"] * len(columns)))
    _, names, first, second = capsys.readouterr().out.splitlines()
    assert names.split() == ["x"] * len(columns)
    assert first.split() == " ".join(text for _, text in columns).split()
    assert second.split() == ["NULL"] * len(columns)
    assert len(names) == len(first) == len(second), "aligned"
