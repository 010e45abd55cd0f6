"""The log of a Delta table, accessed with delta-rs: the only module that imports deltalake.

Permanent errors (a column that does not fit, a missing permission, a feature that cannot be written) are errors of the
author; those that a restart may resolve (a storage outage, too many concurrent writers) become Unavailable.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from lockgate_common import storage as filesystem
from lockgate_common.clock import unix_ms
from lockgate_common.json_input import parse_json
from lockgate_common.masking import is_secret_name, masked
from lockgate_common.storage import Location

from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.sinks.delta_fit import (
    TableShape,
    hides_times,
    holds_nothing,
    misfit,
    nameless,
    nullable,
)
from lockgate_taskmanager.spark.sinks.delta_store import located
from lockgate_taskmanager.spark.variables import filled
from lockgate_taskmanager.task.program import DataError, ProgramError, Unavailable, UserError

# delta-rs's own retries, each after another writer was faster; an append conflicts with none of them
_APPEND_RETRIES = 100
_SYNCED_BEHIND = 100  # entries: how far back to look on disk for a commit that another process has made
# options that name files of the host or ask a service for the host's own rights, and could show either to a stranger
_IDENTITY = re.compile(
    r"_file|_path$|federated|metadata|msi_endpoint|azure_cli|container_(credentials|authorization)|application_credentials"
    r"|(^|_)service_account$",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"^\s*0: ", re.MULTILINE)
_LONGEST = 400


def package() -> ModuleType:
    """deltalake. Raises UserError with instructions when it is missing."""
    if importlib.util.find_spec("deltalake") is None:
        raise UserError("Delta needs the package deltalake on every task manager: pip install 'lockgate[delta]'")
    import deltalake

    return deltalake


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit. files: Parquet files in the table's folder; application, version: Delta's `txn` action."""

    files: tuple[str, ...]
    application: str
    version: int
    note: str


class DeltaLog:
    """The table at one URI. Reads it again at every call, because there may be other writers."""

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str],
        where: str,
        limits: Limits = UNLIMITED,
        *,
        has_worked: bool = False,
    ) -> None:
        """options: of the object store, from the author; where: the operator's name in messages. Raises UserError.

        has_worked: with these credentials, so that a refusal may pass, see StagedSink.
        """
        self.has_worked = has_worked
        self._package = package()
        self._where = where
        self._options = filled(options, where, limits)
        if limits.bind:
            _require_no_identity(options, where)
        limits.check_name(uri, f"{where}: the table {masked(uri)}", writes=True)
        self.folder = self._located(uri)
        self._target = self.folder.path if self.folder.is_local else self.folder.uri

    def committed(self, application: str) -> int:
        """The highest version that an application has committed; 0 for none. Raises UserError, Unavailable."""
        return self._version_of(self._look(), application)

    def require_fit(self, schema: pa.Schema) -> frozenset[str]:
        """The columns that must not be NULL.

        Raises UserError for rows that the table, if it exists, does not accept.
        """
        wanted, table = self._as_delta(schema), self._look()
        if table is not None:
            return self._checked(table, wanted).required
        self._require_makeable(wanted)
        return frozenset()

    def append(self, entry: Entry) -> str | None:
        """Commits unless the version, or a higher one, is committed. None on success; otherwise why to retry.

        The version is read from the very snapshot that the commit builds on, and delta-rs refuses the commit if the
        same application has committed since: of two processes that append the same entry, one succeeds. The table is
        created if it is missing. Raises UserError, Unavailable.
        """
        table = self._look()
        if self._version_of(table, entry.application) >= entry.version:
            self._sync(table, _SYNCED_BEHIND)
            return None
        errors = self._package.exceptions
        try:
            self._commit(table, entry)
        except (errors.CommitFailedError, FileNotFoundError) as error:  # a file: it was committed and removed meanwhile
            return self._plain(error)
        except ProgramError:
            raise
        except Exception as error:
            if table is None and self._look() is not None:
                return "the table was created by another process"
            raise self._failed("did not accept the rows", error) from error
        self._sync(table)
        return None

    def _commit(self, table: Any, entry: Entry) -> None:
        found = [self._added(name) for name in entry.files]
        schema = self._as_delta(found[0][1].schema_arrow)
        actions = [action for action, _ in found]
        if table is not None:
            forbidden = self._checked(table, schema).required & {name for _, file in found for name in _with_null(file)}
            if forbidden:  # checked before, unless the table has forbidden NULL since
                raise DataError(
                    f"{self._where}: the Delta table {self.folder.uri} does not allow NULL in column '{min(forbidden)}'"
                    ", and some rows have NULL there; filter such rows out"
                )
            properties = self._properties(entry, _APPEND_RETRIES)
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
            return
        self._require_makeable(schema)
        # Without retries: after a retry, delta-rs would commit "create" again after another process has created the
        # table.
        self._package.transaction.create_table_with_add_actions(
            self._target,
            self._package.Schema.from_json(json.dumps(nullable(schema))),
            actions,
            storage_options=self._options or None,
            commit_properties=self._properties(entry, 0),
        )

    def _properties(self, entry: Entry, retries: int) -> Any:
        return self._package.CommitProperties(
            custom_metadata={"userMetadata": entry.note, "isBlindAppend": True},
            max_commit_retries=retries,
            # Without the time of day, so that `delta.setTransactionRetentionDuration` never expires it.
            app_transactions=[self._package.Transaction(entry.application, entry.version)],
        )

    def _added(self, name: str) -> tuple[Any, pq.ParquetFile]:
        """The log's action for a file, and its footer metadata; the file is closed. Raises FileNotFoundError."""
        location = self.folder.child(name)
        with location.fs.open_input_file(location.path) as file:
            size, parquet = file.size(), pq.ParquetFile(file)
            statistics = json.dumps({"numRecords": parquet.metadata.num_rows})
            now_ms = unix_ms()
            action = self._package.transaction.AddAction(name, size, {}, now_ms, True, statistics)
            return action, parquet

    def _look(self) -> Any:
        """The current table; None when there is none."""
        try:
            return self._package.DeltaTable(self._target, storage_options=self._options or None)
        except self._package.exceptions.TableNotFoundError:
            return None
        except Exception as error:
            raise self._failed("cannot be read", error) from error

    def _version_of(self, table: Any, application: str) -> int:
        if table is None:
            return 0
        with self._explained("cannot be read"):
            return int(table.transaction_version(application) or 0)

    def _as_delta(self, schema: pa.Schema) -> dict[str, Any]:
        """The schema as Delta's JSON. Raises UserError that names a column which Delta cannot hold."""
        fields: list[Any] = []
        for field in schema:
            try:
                found = parse_json(self._package.Schema.from_arrow(pa.schema([field])).to_json())
            except Exception as error:  # deltalake raises nothing more specific
                raise UserError(self._unknown(field)) from error
            if holds_nothing(found["fields"][0]["type"]):
                raise UserError(self._unknown(field))
            fields += found["fields"]
        made = {"type": "struct", "fields": fields}
        if problem := nameless(made):
            raise UserError(f"{self._where}: {problem}")
        return made

    def _require_makeable(self, schema: Mapping[str, Any]) -> None:
        if hides_times(schema):
            raise UserError(
                f"{self._where}: delta-rs cannot create a table whose only TIMESTAMP_NTZ values are in maps; cast them"
                " to TIMESTAMP, or create the table with Spark first"
            )

    def _unknown(self, field: pa.Field) -> str:
        return f"{self._where}: column '{field.name}' of type {field.type} has no counterpart in Delta; cast it"

    def _checked(self, table: Any, rows: Mapping[str, Any]) -> TableShape:
        with self._explained("cannot be read"):
            metadata, protocol = table.metadata(), table.protocol()
            shape = TableShape(
                schema=parse_json(table.schema().to_json()),
                partitioned_by=tuple(metadata.partition_columns),
                features=frozenset(protocol.writer_features or ()),
                configuration=metadata.configuration,
            )
        if problem := misfit(shape, rows):
            raise UserError(f"{self._where}: the Delta table {self.folder.uri} {problem}")
        return shape

    def _sync(self, table: Any, behind: int = 0) -> None:
        """Makes new entries of a local log durable; delta-rs does not sync them.

        table: as it was before; None when there was none. behind: how many earlier entries are new as well.
        """
        if not self.folder.is_local:
            return
        log, known = self.folder.child("_delta_log").path, -1 if table is None else table.version()
        for version in itertools.count(max(0, known + 1 - behind)):
            try:
                filesystem.sync_file(os.path.join(log, f"{version:020d}.json"))
            except FileNotFoundError:  # after the last entry; or it has been cleaned up
                if version > known:
                    break
        filesystem.sync_folder(log)
        filesystem.sync_folder(self.folder.path)

    def _located(self, uri: str) -> Location:
        try:
            return located(uri, self._options)
        except (OSError, ValueError) as error:
            raise UserError(f"{self._where}: the location {uri} cannot be used: {self._plain(error)}") from error

    @contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._failed(problem, error) from error

    def _failed(self, problem: str, error: Exception) -> ProgramError:
        """The exception to raise for an exception of delta-rs. problem: the predicate after the table's name."""
        errors = self._package.exceptions
        lasting = (errors.DeltaProtocolError, errors.SchemaMismatchError, errors.TableNotFoundError, PermissionError)
        is_lasting = isinstance(error, lasting) or (filesystem.is_refused(error) and not self.has_worked)
        kind = UserError if is_lasting else Unavailable
        return kind(f"{self._where}: the Delta table {self.folder.uri} {problem}: {self._plain(error)}")

    def _plain(self, error: Exception) -> str:
        """In one line, without colours, stack traces and secrets."""
        text = _BACKTRACE.split(_COLOUR.sub("", str(error)))[0]
        for name, value in self._options.items():
            if len(value) > 2 and is_secret_name(name):
                text = text.replace(value, "***")
        return " ".join(text.replace("↳", " ").split())[:_LONGEST]


def _with_null(file: pq.ParquetFile) -> Iterator[str]:
    """Plain columns that contain a NULL, or may contain one."""
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        if "." not in column.path_in_schema and (column.statistics is None or column.statistics.null_count):
            yield column.path_in_schema


def _require_no_identity(options: Mapping[str, str], where: str) -> None:
    for name in options:
        if _IDENTITY.search(name):
            raise UserError(
                f"{where}: the option {name} is about files or rights of the task manager's host, which needs the role"
                " code"
            )
