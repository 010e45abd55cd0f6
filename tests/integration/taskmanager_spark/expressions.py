"""Random records of many types, and random SQL expressions over them, each of a type that is known."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

RECORDS = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("g", pa.int32()),
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(12, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("y", pa.binary()),
        ("l", pa.list_(pa.int64())),
        ("r", pa.struct([("p", pa.int64()), ("q", pa.string())])),
    ]
)
KEYS = ("k", "g", "x", "d", "b", "t", "at", "wall", "y", "n", "f")
START = datetime(2026, 3, 1, tzinfo=UTC)
_TEXTS = ["", "a", "A", "aé", "ß", "日本", "a ", " a", "zz", "'\"", "1", "\t", "line\nbreak", "x" * 40]
_DOUBLES = [0.0, -0.0, 1.5, -2.25, 1e10, float("inf"), float("-inf"), float("nan"), 0.125]


def records(seed: int, count: int) -> pa.Table:
    """`count` records; every column but `id` is NULL now and then. Sums of floats are exact, in any order."""
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    def one(number: int) -> dict[str, Any]:
        # near the ends of windows and intervals, which are multiples of 500 ms
        moment = START + timedelta(milliseconds=500 * rng.randrange(20), microseconds=rng.choice([0, 1, 500, 999]))
        return {
            "id": number,
            "k": maybe(rng.choice(_TEXTS[:8])),
            "g": maybe(rng.randrange(-2, 3)),
            "n": maybe(rng.choice([0, 1, -1, 7, rng.randrange(-1000, 1000), 2**53 + 1, -(2**62)])),
            "f": maybe(rng.choice(_DOUBLES[:4])),
            "x": maybe(rng.choice(_DOUBLES)),
            "d": maybe(Decimal(rng.randrange(-(10**6), 10**6)) / 100),
            "s": maybe(rng.choice(_TEXTS)),
            "b": maybe(rng.random() < 0.5),
            "t": maybe(date(1969, 12, 30) + timedelta(days=rng.randrange(5))),
            "at": maybe(moment),
            "wall": maybe((START + timedelta(hours=rng.randrange(3))).replace(tzinfo=None)),
            "y": maybe(rng.choice([b"", b"a", b"\x00\xff", b"abc"])),
            "l": maybe([maybe(rng.randrange(3)) for _ in range(rng.randrange(3))]),
            "r": maybe({"p": maybe(rng.randrange(3)), "q": maybe(rng.choice(_TEXTS))}),
        }

    return pa.Table.from_pylist([one(number) for number in range(count)], schema=RECORDS)


# By type: columns and literals, and what makes one out of others: {n} stands for an expression of type n.
_LEAVES = {
    "int": ["n", "CAST(g AS BIGINT)", "3L", "r.p", "id"],
    "double": ["x", "CAST(f AS DOUBLE)", "0.5D", "CAST('NaN' AS DOUBLE)"],
    "decimal": ["d", "CAST(1.25 AS DECIMAL(12, 2))"],
    "text": ["s", "k", "'é'", "r.q"],
    "bool": ["b", "true", "CAST(NULL AS BOOLEAN)"],
    "date": ["t", "DATE'2026-02-28'"],
    "time": ["at", "TIMESTAMP'2026-03-01 00:00:05'"],
    "bytes": ["y", "X'00FF'"],
    "list": ["l", "array(1L, NULL, 2L)"],
}
_MADE = {
    "int": [
        "try_add({int}, {int})",
        "try_multiply({int}, 3L)",
        "pmod({int}, 7L)",
        "CAST(length({text}) AS BIGINT)",
        "CASE WHEN {bool} THEN {int} ELSE {int} END",
        "coalesce({int}, {int})",
        "CAST(datediff({date}, {date}) AS BIGINT)",
        "unix_micros({time})",
        "CAST(size({list}) AS BIGINT)",
        "try_element_at({list}, 1)",
        "aggregate(filter({list}, e -> e IS NOT NULL), 0L, (a, e) -> a + e)",
        "xxhash64({text})",
        "(~{int})",
    ],
    "double": [
        "{double} * 2",
        "- {double}",
        "CAST({decimal} AS DOUBLE)",
        "nullif({double}, 1.5D)",
        "if({bool}, {double}, {double})",
        "greatest({double}, {double})",
    ],
    "decimal": ["CAST(round({decimal} / 3, 2) AS DECIMAL(12, 2))", "abs({decimal})", "coalesce({decimal}, d)"],
    "text": [
        "upper({text})",
        "concat({text}, {text})",
        "substring({text}, 2, 3)",
        "CAST({int} AS STRING)",
        "CAST({decimal} AS STRING)",
        "CAST({time} AS STRING)",
        "CAST({date} AS STRING)",
        "hex({bytes})",
        "trim({text})",
        "reverse({text})",
        "to_json(struct({int} AS i, {text} AS t))",
        "CASE WHEN {bool} THEN {text} END",
        "regexp_replace({text}, '[a-z]', '#')",
    ],
    "bool": [
        "{int} > {int}",
        "{text} = {text}",
        "{double} < {double}",
        "{text} IS NULL",
        "NOT {bool}",
        "({bool} AND {bool})",
        "({bool} OR {bool})",
        "{text} <=> {text}",
        "{date} <= {date}",
        "{int} IN (1, 7, NULL)",
        "{text} LIKE '%a%'",
        "isnan({double})",
    ],
    "date": ["date_add({date}, 40)", "CAST({time} AS DATE)", "last_day({date})"],
    "time": ["{time} + INTERVAL '90' SECOND", "date_trunc('minute', {time})", "CAST({date} AS TIMESTAMP)"],
    "bytes": ["CAST({text} AS BINARY)", "unhex(hex({bytes}))"],
    "list": [
        "array({int}, {int})",
        "transform({list}, e -> e + 1)",
        "array_distinct({list})",
        "sort_array({list})",
        "CASE WHEN {bool} THEN {list} END",
        "slice({list}, 1, 1)",
    ],
}
TYPES = tuple(_LEAVES)


@st.composite
def expressions(draw: st.DrawFn, kind: str, depth: int = 2) -> str:
    """SQL of type `kind` that fails for no record."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_LEAVES[kind]))
    template = draw(st.sampled_from(_MADE[kind]))
    pieces = template.split("{")
    made = [pieces[0]]
    for piece in pieces[1:]:
        inner, _, rest = piece.partition("}")
        made += [draw(expressions(inner, depth - 1)), rest]
    return "".join(made)


def of_types(*kinds: str) -> st.SearchStrategy[str]:
    """An expression of one of some types."""
    return st.sampled_from(kinds or TYPES).flatmap(expressions)
