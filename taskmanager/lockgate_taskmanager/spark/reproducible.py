"""Whether a query makes the same of the same records when they come again, in other micro-batches.

Read from the text of Spark's analyzed plan, which a Connect server gives as well. Functions in Python are taken at
their author's word. A query that is not understood counts as one that makes something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lockgate_taskmanager.spark.session import is_connect

DataFrame = Any  # pyspark.sql.DataFrame, classic or Connect
BATCH = "lockgate_batch"
"""The alias of the frame of a micro-batch, by which a plan shows where it reads that."""

_VARYING = re.compile(
    r"\b(current_date|current_time|current_timestamp|current_timezone|java_method|localtimestamp"
    r"|monotonically_increasing_id|now|rand|randn|random|randstr|reflect|shuffle|spark_partition_id|try_reflect|uniform"
    r"|uuid)\(",
    re.IGNORECASE,
)
_SALTED = re.compile(r"\b(aes_encrypt)\(", re.IGNORECASE)  # in each execution anew, whatever the plan
_SPECIAL = r"(now|today|tomorrow|yesterday)"  # as a date or time: that of the plan
_CONVERTED = re.compile(
    rf"\b(?:try_)?(?:cast|to_date|to_timestamp\w*)\(\s*{_SPECIAL}\b(?!#)", re.IGNORECASE
)  # not a column of that name
_LITERAL = re.compile(rf"['\"]\s*{_SPECIAL}\s*['\"]", re.IGNORECASE)
_CUT = re.compile(r"\.\.\. \d+ more (fields|characters)")
_ROW_BY_ROW = frozenset(
    {
        "CollectMetrics",
        "Expand",
        "Filter",
        "Generate",
        "LateralJoin",
        "MapInArrow",
        "MapInPandas",
        "Project",
        "PythonMapInArrow",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sort",
        "SubqueryAlias",
        "Union",
        "View",
    }
)
_ANY_ROWS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Sample", "Tail"})
"""Perhaps others the next time, whatever they are taken of."""

_LINE = re.compile(r"([\s:]*[+:]- |)([A-Za-z]\w*)(.*)")
_CHILD, _INNER = 3, 6  # columns by which the text of an operator's children, and of its subqueries, is indented
_DEEPEST = 200 * _CHILD
_EITHER_SIDE, _FIRST_SIDE = ("Inner", "Cross"), ("LeftOuter", "LeftSemi", "LeftAnti")


@dataclass(slots=True)
class _Node:
    """An operator of a plan. text: what follows its name; reads: how often it reads the micro-batch."""

    depth: int
    name: str
    text: str
    children: list[_Node] = field(default_factory=list)
    inner: list[_Node] = field(default_factory=list)  # its subqueries
    reads: int = 0

    @property
    def is_batch(self) -> bool:
        return self.name == "SubqueryAlias" and self.text.strip() == BATCH


def varying(frame: DataFrame) -> str:
    """The use of a function whose value is random, or fixed when the plan is made, as a clause; "" for none."""
    return _varying(frame, _text(frame))


def varying_literal(query: str) -> str:
    """The use of a date such as 'today' in SQL, as a clause; "" for none. A plan has the day itself in its place."""
    found = _LITERAL.search(query)
    return f"uses '{found[1].lower()}', perhaps as a time" if found else ""


def varying_behind(frame: DataFrame) -> str:
    """How what is prepared for other subtasks may be something else the next time, as a clause; "" for nothing."""
    why = varying(frame)
    return f"the operator behind the exchange {why}" if why else ""


def irreproducible(frame: DataFrame) -> str:
    """Why a record may have another result in another micro-batch, as a clause; "" for no known reason.

    frame: over one with the alias BATCH.
    """
    text = _text(frame)
    if why := _varying(frame, text):
        return why
    if found := _SALTED.search(text):
        return f"uses {found[1].lower()}()"
    plan = _parsed(text)
    if plan is None:
        return "has a plan that is not understood"
    if not plan.reads:
        return "puts out records that do not come from its input"
    why = _combining(plan)
    return f"combines the records of a micro-batch ({why} in Spark's plan)" if why else ""


def _varying(frame: DataFrame, text: str) -> str:
    if found := _VARYING.search(text):
        return f"uses {found[1].lower()}()"
    if found := _CONVERTED.search(text):
        return f"uses '{found[1].lower()}' as a time"
    if _CUT.search(text):
        return "has a plan that is too long to be read"
    if not is_connect(frame) and not frame._jdf.queryExecution().analyzed().deterministic():
        return "uses a function that is not deterministic"
    return ""


def _combining(node: _Node) -> str:
    """The name of the first operator that does; "" for none."""
    if node.is_batch:
        return ""
    if node.name == "Join":
        return _joining(node)
    if node.name not in _ROW_BY_ROW:
        return node.name
    if any(inner.reads for inner in node.inner):
        return f"a subquery of {node.name}"
    if not all(child.reads for child in node.children):
        return node.name  # it adds rows to each micro-batch
    beside = next((why for inner in node.inner if (why := _any_rows(inner))), "")
    return beside or next((why for child in node.children if (why := _combining(child))), "")


def _joining(node: _Node) -> str:
    """As `_combining`: "" if it pairs each record with rows that every micro-batch finds, and adds none alone."""
    reading = [bool(child.reads) for child in node.children]
    kind = node.text.strip().partition(",")[0]
    if node.inner or reading not in ([True, False], [False, True]):
        return node.name
    if kind not in _EITHER_SIDE and not (kind in _FIRST_SIDE and reading[0]):
        return node.name
    batch, beside = node.children if reading[0] else reversed(node.children)
    return _any_rows(beside) or _combining(batch)


def _any_rows(node: _Node) -> str:
    """The name of an operator that takes some of the rows that it gets; "" for none."""
    if node.name in _ANY_ROWS:
        return node.name
    return next((why for below in (*node.inner, *node.children) if (why := _any_rows(below))), "")


def _parsed(text: str) -> _Node | None:
    """The plan as a tree, with each named subquery (WITH) in the places where it is used. None: not understood."""
    root = _Node(-_CHILD, "", "")
    above = [root]
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or (not match[1] and root.children):
            continue  # the rest of a line with text that has several
        if len(match[1]) > _DEEPEST:
            return None
        node = _Node(len(match[1]), match[2], match[3])
        while above[-1].depth >= node.depth:
            above.pop()
        parent = above[-1]
        (parent.inner if node.depth - parent.depth >= _INNER else parent.children).append(node)
        above.append(node)
    return _inlined(root.children[0], {}) if len(root.children) == 1 else None


def _inlined(node: _Node, known: dict[str, _Node]) -> _Node:
    """known: the named subqueries above it, by their number."""
    number = node.text.partition(",")[0]
    if node.name == "CTERelationRef":
        return known.get(number, node)
    node.inner = [_inlined(inner, known) for inner in node.inner]
    node.children = [_inlined(child, known) for child in node.children]
    node.reads = 1 if node.is_batch else sum(below.reads for below in (*node.inner, *node.children))
    if node.name == "CTERelationDef":
        known[number] = node.children[0]
    return node.children[-1] if node.name == "WithCTE" else node


def _text(frame: DataFrame) -> str:
    """Of the analyzed plan."""
    if not is_connect(frame):
        return str(frame._jdf.queryExecution().analyzed().toString())
    _, _, behind = frame._explain_string(extended=True).partition("== Analyzed Logical Plan ==\n")
    _, _, plan = behind.partition("== Optimized")[0].partition("\n")  # without the line of its columns
    return str(plan)
