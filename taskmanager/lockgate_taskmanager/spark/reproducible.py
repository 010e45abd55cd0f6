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
_VARYING = re.compile(
    r"\b(current_date|current_time|current_timestamp|current_timezone|java_method|localtimestamp|monotonically_increasing_id"
    r"|now|rand|randn|random|randstr|reflect|shuffle|spark_partition_id|try_reflect|uniform|uuid)\(",
    re.IGNORECASE,
)
_ROW_BY_ROW = frozenset(
    {
        "CollectMetrics",
        "Expand",
        "Filter",
        "Generate",
        "LocalRelation",
        "LogicalRDD",
        "MapInArrow",
        "MapInPandas",
        "OneRowRelation",
        "Project",
        "PythonMapInArrow",
        "Range",
        "Relation",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sort",
        "SubqueryAlias",
        "Union",
        "View",
    }
)
_LINE = re.compile(r"([\s:+-]*)([A-Za-z]\w*)(.*)")
_IDS = re.compile(r"#\d+L?")
_CHILD, _INNER = 3, 6  # columns by which the text of an operator's children, and of its subqueries, is indented
_EITHER_SIDE, _FIRST_SIDE = ("Inner", "Cross"), ("LeftOuter", "LeftSemi", "LeftAnti")


@dataclass(slots=True)
class _Node:
    """An operator of a plan. text: what follows its name, without the numbers of its columns."""

    depth: int
    name: str
    text: str
    children: list[_Node] = field(default_factory=list)
    inner: list[_Node] = field(default_factory=list)  # its subqueries

    @property
    def line(self) -> str:
        return self.name + self.text

    def count(self, leaf: str) -> int:
        """How often it reads the leaf with this line."""
        return (self.line == leaf) + sum(below.count(leaf) for below in (*self.children, *self.inner))


def varying(frame: DataFrame) -> str:
    """The use of a function whose value is random, or fixed when the plan is made, as a clause; "" for none."""
    if found := _VARYING.search(_text(frame)):
        return f"uses {found[1].lower()}()"
    if not is_connect(frame) and not frame._jdf.queryExecution().analyzed().deterministic():
        return "uses a function that is not deterministic"
    return ""


def combining(frame: DataFrame, bottom: DataFrame) -> str:
    """How results depend on more than one record of the micro-batch, as a clause; "" when each has its own.

    bottom: the frame of the micro-batch.
    """
    plan, leaf = _parsed(_text(frame)), _parsed(_text(bottom))
    while leaf.children:
        leaf = leaf.children[-1]
    if not plan.count(leaf.line):
        return "puts out records that do not come from its input"
    why = _combining(plan, leaf.line)
    return f"combines the records of a micro-batch ({why} in Spark's plan)" if why else ""


def _combining(node: _Node, leaf: str) -> str:
    """The name of the first operator that does; "" for none."""
    if node.name == "Join":
        return "" if _joins_alone(node, leaf) else node.name
    if node.name not in _ROW_BY_ROW:
        return node.name
    if any(inner.count(leaf) for inner in node.inner):
        return f"a subquery of {node.name}"
    if not all(child.count(leaf) for child in node.children):
        return node.name  # it adds rows to each micro-batch
    return next((why for child in node.children if (why := _combining(child, leaf))), "")


def _joins_alone(node: _Node, leaf: str) -> bool:
    """Whether a join pairs each record with rows that every micro-batch finds, and adds none of these alone."""
    if node.inner or len(node.children) != 2 or node.count(leaf) != 1:
        return False
    kind = node.text.strip().partition(",")[0]
    is_first = bool(node.children[0].count(leaf))
    if kind not in _EITHER_SIDE and not (kind in _FIRST_SIDE and is_first):
        return False
    return not _combining(node.children[0 if is_first else 1], leaf)


def _parsed(text: str) -> _Node:
    """The plan as a tree, with each named subquery (WITH) in the places where it is used."""
    root = _Node(-_CHILD, "", "")
    above = [root]
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        node = _Node(len(match[1]), match[2], _IDS.sub("", match[3]))
        while above[-1].depth >= node.depth:
            above.pop()
        parent = above[-1]
        (parent.inner if node.depth - parent.depth >= _INNER else parent.children).append(node)
        above.append(node)
    return _inlined(root.children[0], {}) if root.children else root


def _inlined(node: _Node, known: dict[str, _Node]) -> _Node:
    """known: the named subqueries above it, by their number."""
    number = node.text.partition(",")[0]
    if node.name == "CTERelationRef":
        return known.get(number, node)
    node.inner = [_inlined(inner, known) for inner in node.inner]
    node.children = [_inlined(child, known) for child in node.children]
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
