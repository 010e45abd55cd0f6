"""Lines of CSV and JSON files that do not match the schema: they fail the job, are dropped, or are kept.

The option names are those of Spark's readers: `mode` is FAILFAST, DROPMALFORMED or PERMISSIVE,
`columnNameOfCorruptRecord` the column for the text. The default mode here is FAILFAST: NULL in place of unreadable
values would be a silently wrong result. Dropped and kept lines are counted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

from lockgate_proto.messages import Operator
from pyspark.sql.functions import expr

from lockgate_taskmanager.spark.jobs import to_arrow
from lockgate_taskmanager.spark.session import is_connect
from lockgate_taskmanager.task.program import DataError, UserError

DataFrame = Any  # pyspark.sql.DataFrame, classic or Connect
_METRIC, _FOUND = "lockgate_malformed", "malformed"
_MARK = "lockgate-malformed:"
_MARKED = re.compile(_MARK + r"([A-Za-z0-9+/=]*);")
_MAX_QUOTED = 200  # characters of a line


class Mode(Enum):
    """What happens to a line that does not match the schema."""

    FAIL = "FAILFAST"
    DROP = "DROPMALFORMED"
    KEEP = "PERMISSIVE"


class Malformed:
    """How one source handles such lines. Used from one thread at a time."""

    def __init__(self, options: Mapping[str, str], where: str = "") -> None:
        """options: of Spark's reader. Raises UserError for an unknown mode."""
        known = {name.lower(): value for name, value in options.items()}
        name = known.get("mode", Mode.FAIL.value).upper()
        if name not in {mode.value for mode in Mode}:
            modes = ", ".join(mode.value for mode in Mode)
            raise UserError(f"{where}the option mode is {known['mode']}; it must be one of {modes}")
        self.mode = Mode(name)
        self.column = known.get("columnnameofcorruptrecord") or "_corrupt_record"
        self._alone: DataFrame | None = None  # counts with a job of its own; only with Spark Connect

    def read(self, ddl: str, names: list[str], parse: Callable[[str, dict[str, str]], DataFrame]) -> DataFrame:
        """The records. names: of the declared columns; parse: reads with a schema and additional options."""
        quoted = f"`{self.column.replace('`', '``')}`"
        is_declared = any(name.lower() == self.column.lower() for name in names)
        others = [f"`{name.replace('`', '``')}`" for name in names if name.lower() != self.column.lower()]
        if not others:
            raise UserError(f"the schema '{ddl}' has no column except the one for corrupt records")
        schema = ddl if is_declared else f"{ddl}, {quoted} STRING"
        frame = parse(schema, {"mode": Mode.KEEP.value, "columnNameOfCorruptRecord": self.column})
        # Spark refuses to read this column alone, so another one is always requested
        if self.mode is Mode.FAIL:
            text = f"base64(CAST(left({quoted}, {_MAX_QUOTED}) AS BINARY))"
            failure = f"raise_error(concat('{_MARK}', {text}, ';', if({others[0]} IS NULL, '0', '1')))"
            frame = frame.where(f"CASE WHEN {quoted} IS NULL THEN true ELSE CAST({failure} AS BOOLEAN) END")
        else:
            counted = expr(f"count_if({quoted} IS NOT NULL)").alias(_FOUND)
            self._alone = frame.select(counted, expr(f"count({others[0]})")) if is_connect(frame) else None
            frame = frame.observe(_METRIC, counted, expr(f"count({others[0]})").alias("first"))
            frame = frame.where(f"{quoted} IS NULL") if self.mode is Mode.DROP else frame
        return frame if is_declared else frame.drop(self.column)

    def count(self, frame: DataFrame) -> int:
        """Such lines in the batch for which `frame`, derived from the result of `read`, was executed last."""
        if self.mode is Mode.FAIL:
            return 0
        if self._alone is not None:
            noted = dict(frame.executionInfo.flows).get(_METRIC)
            return int((noted or to_arrow(self._alone).to_pylist()[0])[_FOUND])
        found = frame._jdf.queryExecution().observedMetrics().get(_METRIC)
        return 0 if found.isEmpty() else int(found.get().getLong(0))


def describe(error: DataError) -> DataError:
    """The error, or the sentence for it when it comes from a malformed line."""
    found = _MARKED.search(str(error))
    if found is None:
        return error
    line = base64.b64decode(found[1]).decode("utf-8", "replace")
    return DataError(
        f"a line does not match the source's schema: {line!r}; correct it, or give the source"
        ' mode="DROPMALFORMED" to drop and count such lines, or mode="PERMISSIVE" and a column _corrupt_record STRING'
        " to keep them"
    )


def is_malformed(error: DataError) -> bool:
    """Whether a malformed line caused the error."""
    return error.text.startswith("a line does not match the source's schema")


@contextmanager
def lines_of(source: Operator | None) -> Iterator[None]:
    """Attributes a malformed line to the source that has read it, not to the operator that received it."""
    try:
        yield
    except DataError as error:
        if source is None or not is_malformed(error):
            raise
        name = source.name if source.name in ("", source.id) else f"{source.name}' (id '{source.id}"
        raise error.at(f"operator '{name or source.id}'", source.id) from error
