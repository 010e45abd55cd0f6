"""The tree of nodes: pure data with transactions that happen whole or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ha.errors import Conflict
from ha.store import Check, Create, Delete, Operation, Put


@dataclass(frozen=True, slots=True)
class TreeNode:
    """owner: the session of an ephemeral node, "" for a persistent one; made: children ever created."""

    data: bytes = b""
    version: int = 0
    owner: str = ""
    made: int = 0
    children: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction touched. data: the node itself came, changed or went; otherwise its list of children."""

    path: str
    data: bool


class Tree:
    """Nodes by path. Not thread-safe."""

    def __init__(self) -> None:
        self._nodes: dict[str, TreeNode] = {"/": TreeNode()}
        self._undo: dict[str, TreeNode | None] = {}
        self._changes: list[Change] = []

    def get(self, path: str) -> TreeNode | None:
        """The node, None when it does not exist."""
        return self._nodes.get(path)

    def children(self, path: str) -> tuple[str, ...]:
        """Sorted names."""
        node = self._nodes.get(path)
        return () if node is None else tuple(sorted(node.children))

    def owned_by(self, session: str) -> tuple[str, ...]:
        """The ephemeral nodes of a session."""
        return tuple(path for path, node in self._nodes.items() if node.owner == session)

    def transact(self, operations: Sequence[Operation], session: str) -> tuple[tuple[str, ...], tuple[Change, ...]]:
        """Returns the paths and the changes. Raises Conflict, then nothing was done."""
        self._undo, self._changes = {}, []
        try:
            paths = tuple(self._apply(one, session) for one in operations)
        except Conflict:
            for path, node in self._undo.items():
                if node is None:
                    self._nodes.pop(path, None)
                else:
                    self._nodes[path] = node
            raise
        return paths, tuple(self._changes)

    def _apply(self, operation: Operation, session: str) -> str:
        if isinstance(operation, Create):
            return self._create(operation, session)
        node = self._nodes.get(operation.path)
        if node is None:
            raise Conflict(operation.path, "does not exist")
        if operation.version is not None and operation.version != node.version:
            raise Conflict(operation.path, "was changed by someone else")
        if isinstance(operation, Put):
            self._set(operation.path, dataclasses.replace(node, data=operation.data, version=node.version + 1))
            self._changes.append(Change(operation.path, data=True))
        elif isinstance(operation, Delete):
            self._delete(operation.path, node)
        else:
            assert isinstance(operation, Check)
        return operation.path

    def _create(self, operation: Create, session: str) -> str:
        above, _, name = operation.path.rpartition("/")
        parent_path = above or "/"
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise Conflict(operation.path, "does not exist")  # ZooKeeper's word for a missing parent
        if parent.owner:
            raise Conflict(operation.path, "has a parent that is ephemeral")
        if operation.sequential:
            name = f"{name}{parent.made:010d}"
        path = f"{above}/{name}"
        if path in self._nodes:
            raise Conflict(operation.path, "exists already")
        self._set(path, TreeNode(operation.data, owner=session if operation.ephemeral else ""))
        self._set(parent_path, dataclasses.replace(parent, made=parent.made + 1, children=parent.children | {name}))
        self._changes += [Change(path, data=True), Change(parent_path, data=False)]
        return path

    def _delete(self, path: str, node: TreeNode) -> None:
        if node.children:
            raise Conflict(path, "has children")
        above, _, name = path.rpartition("/")
        parent_path = above or "/"
        parent = self._nodes[parent_path]
        self._remember(path)
        del self._nodes[path]
        self._set(parent_path, dataclasses.replace(parent, children=parent.children - {name}))
        self._changes += [Change(path, data=True), Change(path, data=False), Change(parent_path, data=False)]

    def _set(self, path: str, node: TreeNode) -> None:
        self._remember(path)
        self._nodes[path] = node

    def _remember(self, path: str) -> None:
        if path not in self._undo:
            self._undo[path] = self._nodes.get(path)
