"""Calls a function with one record at a time.

A record on which it fails is known at once, because there is one result for each call: no other record is tried twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.spark.functions.rows import (
    UNREADABLE,
    Record,
    Results,
    UnreadableRecord,
    UnreadableRecordError,
    WrongResult,
    careful_records,
    described,
    is_named,
    records_of,
)
from lockgate_taskmanager.spark.user_code import caught

Function = Callable[[Record], Any]
_AT_ONCE = 4_096  # records: few enough for the processor's cache, and for the garbage collector
_VERDICTS = frozenset({bool, type(None), np.bool_})


@dataclass(slots=True)
class Called:
    """batches: what came of the records, in order; failed: by record number, the error."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    failed: dict[int, Exception] = field(default_factory=dict)


class Call(Protocol):
    """How a function is called, and what becomes of its results: one for each record that it did not fail on."""

    def call(self, function: Function, records: Iterator[Record], results: list[Any]) -> None:
        """Calls the function with the remaining records, and appends its results."""
        ...

    def batches(self, given: pa.RecordBatch, results: list[Any]) -> list[pa.RecordBatch]:
        """The output. given: the records of these results. Raises WrongResult."""
        ...

    def wrong(self, results: list[Any]) -> dict[int, str]:
        """The results that `batches` does not accept, by index, with the reason."""
        ...


class Map:
    """One record for each."""

    def __init__(self, schema: pa.Schema) -> None:
        self._results = Results(schema)

    def call(self, function: Function, records: Iterator[Record], results: list[Any]) -> None:
        append, taken = results.append, self._results.taken
        for record in records:
            append(taken(function(record)))

    def batches(self, given: pa.RecordBatch, results: list[Any]) -> list[pa.RecordBatch]:  # noqa: ARG002
        return self._results.batches(results)

    def wrong(self, results: list[Any]) -> dict[int, str]:
        return self._results.wrong(results)


class FlatMap:
    """Any number of records for each."""

    def __init__(self, schema: pa.Schema) -> None:
        self._results = Results(schema)

    def call(self, function: Function, records: Iterator[Record], results: list[Any]) -> None:
        append, taken = results.append, self._results.taken
        for record in records:
            found = function(record)
            append([taken(result) for result in (found if type(found) is list else _iterable(found))])

    def batches(self, given: pa.RecordBatch, results: list[Any]) -> list[pa.RecordBatch]:  # noqa: ARG002
        try:
            return self._results.batches(list(chain.from_iterable(results)))
        except WrongResult as error:
            ends = np.cumsum([len(found) for found in results])
            raise WrongResult(str(error), int(np.searchsorted(ends, error.index, side="right"))) from None

    def wrong(self, results: list[Any]) -> dict[int, str]:
        reasons = ((index, self._results.wrong(found)) for index, found in enumerate(results))
        return {index: next(iter(texts.values())) for index, texts in reasons if texts}


class Filter:
    """Whether a record is kept. None drops it, as NULL does in SQL."""

    def call(self, function: Function, records: Iterator[Record], results: list[Any]) -> None:
        append = results.append
        for record in records:
            append(function(record))

    def batches(self, given: pa.RecordBatch, results: list[Any]) -> list[pa.RecordBatch]:
        if not _VERDICTS.issuperset(map(type, results)):
            index, text = next(iter(self.wrong(results).items()))
            raise WrongResult(text, index)
        return [given.filter(pa.array(results, pa.bool_()))]

    def wrong(self, results: list[Any]) -> dict[int, str]:
        return {
            index: f"returned {described(result)}; a filter returns True or False"
            for index, result in enumerate(results)
            if type(result) not in _VERDICTS
        }


class Broadcast:
    """`process_broadcast`, which puts nothing out."""

    def call(self, function: Function, records: Iterator[Record], results: list[Any]) -> None:
        append = results.append
        for record in records:
            append(function(record))

    def batches(self, given: pa.RecordBatch, results: list[Any]) -> list[pa.RecordBatch]:  # noqa: ARG002
        for index, text in self.wrong(results).items():
            raise WrongResult(text, index)
        return []

    def wrong(self, results: list[Any]) -> dict[int, str]:
        return {
            index: f"returned {described(result)}; process_broadcast() puts nothing out, and returns None"
            for index, result in enumerate(results)
            if result is not None
        }


class RecordCalls:
    """A function over the records of tables."""

    def __init__(self, function: Function, call: Call, names: tuple[str, ...]) -> None:
        """names: the columns of the records."""
        self._function, self._call, self._records_of = function, call, records_of(names)

    def run(self, table: pa.Table, may_spare: Callable[[Exception], bool], check: Callable[[], None]) -> Called:
        """may_spare: whether the call continues without a record, given its error: otherwise the error is raised, as a
        Failed.

        check: raises Canceled; called from time to time.
        """
        called, first = Called(), 0
        for batch in table.to_batches(max_chunksize=_AT_ONCE):
            check()
            numbers = range(first, first + batch.num_rows)
            try:
                records = self._records_of(batch)
            except UNREADABLE:
                self._run_readable(batch, first, called, may_spare)
            else:
                self._run(batch, records, numbers, called, may_spare)
            first += batch.num_rows
        called.failed = dict(sorted(called.failed.items()))
        return called

    def _run_readable(
        self, batch: pa.RecordBatch, first: int, called: Called, may_spare: Callable[[Exception], bool]
    ) -> None:
        """For a batch of which Python cannot hold each value."""
        records, readable = careful_records(batch), list[int]()
        for number, record in enumerate(records):
            if not isinstance(record, UnreadableRecord):
                readable.append(number)
                continue
            error = UnreadableRecordError(record.reason)
            if not may_spare(error):
                raise Failed(first + number, error)
            called.failed[first + number] = error
        rest = iter([records[number] for number in readable])
        self._run(batch.take(pa.array(readable, pa.int64())), rest, [first + n for n in readable], called, may_spare)

    def _run(
        self,
        batch: pa.RecordBatch,
        records: Iterator[Record],
        numbers: Sequence[int],
        called: Called,
        may_spare: Callable[[Exception], bool],
    ) -> None:
        """numbers: of the records in the table."""
        results, failed = list[Any](), dict[int, Exception]()
        is_over = False
        while not is_over:
            try:
                self._call.call(self._function, records, results)
                is_over = True
            except BaseException as found:  # the author's code
                error = caught(found)
                number = len(results) + len(failed)
                if not may_spare(error):
                    self._check(batch, numbers, results, may_spare)  # an earlier result may have been wrong
                    raise Failed(numbers[number], error) from error
                failed[number] = error
        given, kept = batch, list(range(batch.num_rows))
        if failed:
            kept = [number for number in kept if number not in failed]
            given = batch.take(pa.array(kept, pa.int64()))
        try:
            made = self._call.batches(given, results)
        except WrongResult as error:
            if not may_spare(error):
                raise Failed(numbers[kept[error.index]], error) from None
            wrong = self._call.wrong(results)
            failed |= {kept[index]: WrongResult(text) for index, text in wrong.items()}
            right = [index for index in range(len(results)) if index not in wrong]
            made = self._call.batches(given.take(pa.array(right, pa.int64())), [results[index] for index in right])
        called.batches.extend(made)
        called.failed |= {numbers[number]: error for number, error in failed.items()}

    def _check(
        self, batch: pa.RecordBatch, numbers: Sequence[int], results: list[Any], may_spare: Callable[[Exception], bool]
    ) -> None:
        """Raises Failed for the first result that does not fit. results: of the first records of the batch."""
        try:
            self._call.batches(batch.slice(0, len(results)), results)
        except WrongResult as error:
            if not may_spare(error):
                raise Failed(numbers[error.index], error) from None


class Failed(Exception):
    """The function failed on a record. number: of the record; reason: its exception, or a WrongResult."""

    def __init__(self, number: int, reason: Exception) -> None:
        super().__init__(str(reason))
        self.number, self.reason = number, reason


def _iterable(found: Any) -> Iterable[Any]:
    if found is None:
        return ()
    if isinstance(found, Mapping) or (isinstance(found, tuple) and is_named(found)):
        return (found,)
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise WrongResult(f"returned {described(found)}; flat_map takes a list of records, a generator, or None")
    return found
