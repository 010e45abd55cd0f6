"""Which columns can leave a Spark job: those whose values, types and order are the same everywhere.

Results travel as Arrow to other operators, keyed state and sinks. Types are allowed, not forbidden: a type that is not
known to arrive unchanged is refused when the plan is made, before any record is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from lockgate_taskmanager.task.program import UserError

_PLAIN = frozenset(
    {
        BinaryType,
        BooleanType,
        ByteType,
        DateType,
        DayTimeIntervalType,
        DecimalType,
        DoubleType,
        FloatType,
        IntegerType,
        LongType,
        ShortType,
        TimestampNTZType,
        TimestampType,
    }
)
_BINARY_ORDER = "UTF8_BINARY"


def require_passable(columns: StructType, where: str) -> None:
    """Raises UserError, with `where` and the column's name in front, for a column that cannot leave Spark unchanged."""
    problem = next((f"column '{field.name}' {why}" for field in columns.fields if (why := refusal(field.dataType))), "")
    problem = problem or _doubled(columns.names)
    if problem:
        raise UserError(f"{where}: {problem}")


def refusal(kind: DataType) -> str:
    """Why values of this type cannot leave a Spark job, with a remedy; empty when they can."""
    if isinstance(kind, StringType):
        return _refused_order(kind)
    if type(kind) in _PLAIN:
        return ""
    if isinstance(kind, ArrayType):
        return _inside(kind, ("its elements", kind.elementType))
    if isinstance(kind, MapType):
        return _inside(kind, ("its keys", kind.keyType), ("its values", kind.valueType))
    if isinstance(kind, StructType):
        return _refused_struct(kind)
    if isinstance(kind, NullType):
        return "has no type, it is always NULL: give it one with CAST(... AS ...)"
    return f"is of type {kind.simpleString()}, which cannot be passed on{_instead(kind)}"


def key_refusal(kind: DataType) -> str:
    """Why values of this type cannot be keys; empty when they can."""
    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        return f"is of type {kind.simpleString()}, which cannot be a key; use a plain value, such as one of its fields"
    return refusal(kind)


def _refused_order(kind: StringType) -> str:
    collation = kind.collation
    if collation == _BINARY_ORDER:
        return ""
    return (
        f"has the collation {collation}. It only applies within this step: afterwards, and as a key, text is compared "
        "byte by byte. Pass it on with CAST(... AS STRING); for keys pass on an expression that maps equal text to one "
        "value, such as lower(CAST(... AS STRING))"
    )


def _refused_struct(kind: StructType) -> str:
    if not kind.fields:
        return "is a struct without fields, which cannot be passed on: leave it out"
    if doubled := _doubled(kind.names, "fields"):
        return f"is a struct, in which {doubled}"
    return _inside(kind, *((f"its field '{field.name}'", field.dataType) for field in kind.fields))


def _inside(kind: DataType, *parts: tuple[str, DataType]) -> str:
    for name, inner in parts:
        if why := refusal(inner):
            return f"is of type {kind.simpleString()}, and {name}: it {why}"
    return ""


def _instead(kind: DataType) -> str:
    if isinstance(kind, VariantType):
        return ": pass on to_json(...) of it, or CAST(... AS ...) to the type of its content"
    if isinstance(kind, YearMonthIntervalType):
        return ": pass on its months as a number, with CAST(... AS INTERVAL MONTH) and CAST(... AS INT)"
    return ": CAST it to another type, such as STRING"


def _doubled(names: Sequence[str], kinds: str = "columns") -> str:
    """Spark ignores case in names, and cannot tell `a` from `A` when it reads them again."""
    count = Counter(name.casefold() for name in names)
    alike = [name for name in names if count[name.casefold()] > 1]
    if not alike:
        return ""
    first = alike[0]
    second = next(name for name in alike[1:] if name.casefold() == first.casefold())
    if first == second:
        return f"two {kinds} are named '{first}': give one of them another name with AS"
    return f"two {kinds} are named '{first}' and '{second}', which Spark takes for one name: rename one with AS"
