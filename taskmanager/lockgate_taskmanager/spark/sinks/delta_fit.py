"""Whether rows may be appended to a Delta table unchanged, without the work that a table demands of its writers.

Files added to the log are not checked afterwards: constraints, generated columns and the like are the writer's
responsibility. A table that needs a feature which this writer lacks is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Delta's rule, because tables without column mapping must be readable by all clients
_NO_NAME = re.compile(r"[ ,;{}()\n\t=]")
_NULLABLE = ("nullable", "containsNull", "valueContainsNull")
_LOOKED_AT = {  # table features that do not affect appending, or only in ways covered by the checks below
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
_COMPUTED = ("delta.generationExpression", "delta.invariants", "delta.identity.")  # in the metadata of a column


@dataclass(frozen=True, slots=True)
class TableShape:
    """The metadata of a Delta table. schema: as Delta's JSON; features: writer features, for tables that list them.

    configuration: the table's properties.
    """

    schema: Mapping[str, Any]
    partitioned_by: tuple[str, ...]
    features: frozenset[str]
    configuration: Mapping[str, str]

    @property
    def required(self) -> frozenset[str]:
        """Columns that do not allow NULL."""
        return frozenset(field["name"] for field in self.schema["fields"] if not field["nullable"])


def nameless(schema: Mapping[str, Any]) -> str | None:
    """A sentence about columns or struct fields with names that Delta does not allow; None when there is none."""
    return next(_nameless(schema), None)


def holds_nothing(kind: Any) -> bool:
    """True for a type whose only value is NULL, or that contains one. kind: as for `spelled`."""
    return kind == "void" or any(map(holds_nothing, _inside(kind)))


def hides_times(schema: Mapping[str, Any]) -> bool:
    """True when TIMESTAMP_NTZ occurs only inside maps.

    delta-rs 1.6 does not look into maps: it creates such a table without the feature that the type requires, and cannot
    read it afterwards.
    """
    return _has_times(schema, into_maps=True) and not _has_times(schema, into_maps=False)


def _has_times(kind: Any, into_maps: bool) -> bool:
    if isinstance(kind, Mapping) and "keyType" in kind and not into_maps:
        return False
    return kind == "timestamp_ntz" or any(_has_times(inner, into_maps) for inner in _inside(kind))


def _nameless(kind: Any) -> Iterator[str]:
    seen: dict[str, str] = {}
    for field in kind.get("fields", ()) if isinstance(kind, Mapping) else ():
        name = field["name"]
        if not name or _NO_NAME.search(name):
            yield f"column '{name}' cannot be in a Delta table: give it a name without spaces and ,;{{}}()="
        if name.casefold() in seen:
            yield f"the columns '{seen[name.casefold()]}' and '{name}' differ in case only, which Delta does not allow"
        seen[name.casefold()] = name
    for inner in _inside(kind):
        yield from _nameless(inner)


def _inside(kind: Any) -> list[Any]:
    """The component types of a type."""
    if not isinstance(kind, Mapping):
        return []
    fields = [field["type"] for field in kind.get("fields", ())]
    return [*fields, *(kind[name] for name in ("elementType", "keyType", "valueType") if name in kind)]


def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with NULL allowed everywhere, as Spark creates tables: later batches may contain NULL."""
    return {name: name in _NULLABLE or _deep(value) for name, value in schema.items()}


def misfit(table: TableShape, rows: Mapping[str, Any]) -> str | None:
    """The end of a sentence that begins with the table: why rows with this schema (Delta's JSON) cannot be appended."""
    return next(_misfits(table, rows), None)


def _misfits(table: TableShape, rows: Mapping[str, Any]) -> Iterator[str]:
    if table.partitioned_by:
        yield f"is partitioned by {', '.join(table.partitioned_by)}; only tables without partitions can be appended to"
    for feature in sorted(table.features - _LOOKED_AT):
        yield f"has the feature {feature}, which this sink cannot write"
    if table.configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "maps its columns to other names, which this sink cannot write"
    for name in sorted(table.configuration):
        if name.startswith("delta.constraints."):
            yield f"has the constraint {name.removeprefix('delta.constraints.')}, which this sink cannot check"
    theirs = {field["name"]: field for field in table.schema["fields"]}
    for name, field in theirs.items():
        if any(key.startswith(_COMPUTED) for key in field.get("metadata") or {}):
            yield f"has values that are computed or checked in column '{name}', which this sink cannot do"
        if _demands(field["type"]):
            yield f"forbids NULL inside column '{name}', which this sink cannot check"
    yield from _misfitting_columns(theirs, {field["name"]: field for field in rows["fields"]})


def _misfitting_columns(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    for name, field in ours.items():
        if name not in theirs:
            yield f"has no column '{name}'; its columns are: {', '.join(theirs)}"
        elif spelled(theirs[name]["type"]) != spelled(field["type"]):
            found, wanted = spelled(theirs[name]["type"]), spelled(field["type"])
            yield f"has column '{name}' as {found}, but the rows have {wanted}; cast it"
    for name, field in theirs.items():
        if not field["nullable"] and name not in ours:
            yield f"requires a value for column '{name}', which the rows do not have"


def spelled(kind: Any) -> str:
    """A type without nullability. kind: Delta's JSON, text for a plain type."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{spelled(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{spelled(kind['keyType'])},{spelled(kind['valueType'])}>"
    if kind["type"] == "struct":
        return f"struct<{','.join(field['name'] + ':' + spelled(field['type']) for field in kind['fields'])}>"
    return json.dumps(kind)


def _demands(kind: Any) -> bool:
    """True when something inside the type must not be NULL."""
    if isinstance(kind, list):
        return any(map(_demands, kind))
    if not isinstance(kind, Mapping):
        return False
    return any(kind.get(name) is False for name in _NULLABLE) or any(_demands(value) for value in kind.values())


def _deep(value: Any) -> Any:
    if isinstance(value, Mapping):
        return nullable(value)
    return [_deep(element) for element in value] if isinstance(value, list) else value
