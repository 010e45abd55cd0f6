"""Dead letters: tables of records that operators have failed on, and the side outputs that they go to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from lockgate_proto.messages import OnError, Operator

from lockgate_taskmanager.spark.leaf import Content
from lockgate_taskmanager.spark.outputs import Outputs
from lockgate_taskmanager.spark.sinks import jsonlines
from lockgate_taskmanager.task.program import DataError, Emission, ProgramError

SCHEMA = pa.schema([("operator", pa.string()), ("error", pa.string()), ("record", pa.string())])


def spares(operator: Operator) -> bool:
    """Whether the operator skips records that it fails on."""
    return operator.on_error in (OnError.SKIP, OnError.DEAD_LETTER)


def letters(operator: Operator, records: Sequence[str], errors: Sequence[str]) -> pa.Table:
    """The dead letters for failed records. records: see `record_text`; errors: one for each record."""
    return pa.table([[operator.id] * len(records), list(errors), list(records)], schema=SCHEMA)


def text_of(error: ProgramError, where: str) -> str:
    """The error's text. where: prefix to remove."""
    return error.text if isinstance(error, DataError) else str(error).removeprefix(f"{where}: ")


def record_text(record: Content) -> str:
    """One row as JSON; text that is not a row is returned unchanged."""
    if not isinstance(record, pa.Table):
        return b"".join(record).decode("utf-8", "replace").rstrip("\r\n")
    try:
        return jsonlines.to_lines(record).decode("utf-8", "replace").rstrip("\n")
    except (AssertionError, pa.ArrowException):  # of a type that JSON lines cannot hold
        return str(record.to_pylist()[0])


class DeadLetters:
    """The side outputs of one vertex by name."""

    def __init__(self, outputs: Mapping[str, Outputs]) -> None:
        self._outputs = outputs

    def compile(self) -> tuple[Emission, ...]:
        """Makes the plans of the edges; returns an empty table for each."""
        for outputs in self._outputs.values():
            outputs.compile(SCHEMA, is_fused=False)
        return tuple(emission for outputs in self._outputs.values() for emission in outputs.prologue())

    def outputs(self) -> Collection[Outputs]:
        """To which the letters go."""
        return self._outputs.values()

    def warm_up(self) -> None:
        """Runs the plans of the edges over no records."""
        for outputs in self._outputs.values():
            outputs.warm_up()

    def emit(self, operator: Operator, failed: pa.Table) -> tuple[Emission, ...]:
        """Emits the letters to the operator's side output; nothing for an operator that skips."""
        outputs = self._outputs.get(operator.dead_letters)
        return outputs.emit(failed)[0] if outputs is not None else ()
