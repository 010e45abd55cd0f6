"""Hints for those who write a pipeline as they would in PySpark or Flink."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lockgate.pipeline.errors import PipelineError

_AGGREGATE = 'key_by("word").aggregate(n=count())'
_SELECT = 'select("*", "price * 2 AS twice")'
_WRITE = "write_parquet(), write_sql() and the other write_...() methods"
_ORDER = "a stream has no end to sort or count up to: do it per batch in foreach_batch(), or where the output is read"
_TABLES = 'flat_map(function, schema="word STRING", vectorized="{}"), whose function gets one table and returns one'
_READ = "job.read_text(), read_csv(), read_json(), read_parquet(), read_kafka()"
INSTEAD: dict[str, str] = {
    **dict.fromkeys(("groupBy", "groupby", "group_by", "agg", "reduce", "sum", "count"), _AGGREGATE),
    **dict.fromkeys(("keyBy", "partitionBy"), 'key_by("word")'),
    **dict.fromkeys(("withColumn", "withColumns"), _SELECT),
    **dict.fromkeys(("withColumnRenamed", "drop"), 'select("a", "b AS c"), which names the columns to keep'),
    "selectExpr": "select(), which takes expressions",
    "flatMap": 'flat_map(function, schema="word STRING")',
    "explode": "sql() with SELECT explode(list) AS one FROM input",
    "mapInArrow": _TABLES.format("arrow"),
    **dict.fromkeys(("mapInPandas", "mapPartitions"), _TABLES.format("pandas")),
    **dict.fromkeys(
        ("withWatermark", "assignTimestampsAndWatermarks", "assign_timestamps_and_watermarks"),
        'event_time("at", out_of_order="5 seconds")',
    ),
    **dict.fromkeys(("dropDuplicates", "dropDuplicatesWithinWatermark", "distinct"), 'key_by("id").deduplicate()'),
    **dict.fromkeys(("countWindow", "countWindowAll", "count_window"), 'key_by("user").count_window(100)'),
    **dict.fromkeys(("timeWindow", "windowAll"), 'key_by("user").window(tumbling("5 seconds"))'),
    "join": "key_by(...).interval_join() for two streams; transform(lambda df: df.join(...)) for a table",
    "connect": "with_broadcast(rules) for rules or a model; key_by(...).interval_join() for two streams of events",
    **dict.fromkeys(("unionAll", "unionByName"), "union()"),
    **dict.fromkeys(("orderBy", "sort", "limit", "head", "take"), _ORDER),
    **dict.fromkeys(("repartition", "coalesce"), "parallelism(n), or rebalance()"),
    **dict.fromkeys(("applyInPandasWithState", "transformWithState", "mapGroupsWithState"), "key_by(...).process()"),
    **dict.fromkeys(("write", "writeStream", "writeTo", "saveAsTable", "addSink", "sinkTo", "sink_to"), _WRITE),
    "foreachBatch": "foreach_batch()",
    "foreach": "foreach_batch()",
    "show": "print(), or `lockgate run FILE.py` to look at a sample",
    **dict.fromkeys(("collect", "toPandas"), "`lockgate run FILE.py`, or lockgate.testing.preview(job)"),
    **dict.fromkeys(("readStream", "read", "addSource", "fromSource", "from_source"), _READ),
    **dict.fromkeys(("start", "execute", "awaitTermination"), "job.submit()"),
}
_KEYWORDS = {
    "partitionBy": "Files are not sorted into folders by a column: filter() the stream into one sink for each value",
    **dict.fromkeys(("output_type", "result_type"), 'schema="word STRING, n INT" says what a function returns'),
    "func_type": 'vectorized="arrow" or "pandas" is for functions of many records at once',
    "format": "The method names the format: write_parquet(), write_csv(), write_json()",
    "checkpointLocation": "Checkpoints are in the cluster's storage; see the arguments of Job",
    "outputMode": "An aggregate puts out the new value of a key; a sink with a key keeps the newest",
}
_UNEXPECTED = re.compile(r"^(\w+)\.(\w+)\(\) got an unexpected keyword argument '(\w+)'")


class NoSuchMethod(PipelineError, AttributeError):
    """A method that there is not, with the one that does it."""


class Hinting:
    """Base of the objects that a pipeline is built with: for a method that they do not have, it names another."""

    if not TYPE_CHECKING:  # a type checker reports unknown methods itself

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name.startswith("_"):
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            raise NoSuchMethod(f"a {kind} has no {name}(){_hint(name, dir(type(self)))}")


def keyword_problem(error: TypeError) -> str:
    """A sentence for an unknown keyword of a method of `Hinting`, or "" for any other error."""
    found = _UNEXPECTED.match(str(error))
    kinds = [kind for kind in _kinds(Hinting) if found and kind.__name__ == found[1]]
    method = getattr(kinds[0], found[2], None) if found and kinds else None
    if found is None or method is None:
        return ""
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    hint = _KEYWORDS.get(found[3], "")
    called = "Job" if found[2] == "__init__" else found[2]
    return f"{called}() has no argument {found[3]}; it takes {', '.join(names)}{f'. {hint}' if hint else ''}"


def _kinds(base: type[Hinting]) -> Iterator[type[Hinting]]:
    for derived in base.__subclasses__():
        yield derived
        yield from _kinds(derived)


def _hint(name: str, methods: Iterable[str]) -> str:
    if name in INSTEAD:
        return f"; use {INSTEAD[name]}" if INSTEAD[name] != _ORDER else f"; {_ORDER}"
    close = difflib.get_close_matches(name, [method for method in methods if not method.startswith("_")], n=1)
    return f"; did you mean {close[0]}()?" if close else "; docs/pipeline-authors.md lists what there is"
