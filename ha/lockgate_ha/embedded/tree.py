"""The tree of nodes: pure data with atomic transactions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from lockgate_ha.errors import AccessDenied, Conflict
from lockgate_ha.protection import Owner
from lockgate_ha.store import Check, Create, Delete, Operation, Put


@dataclass(frozen=True, slots=True)
class TreeNode:
    """owner: the session of an ephemeral node, "" for a persistent one; made: children ever created.

    admits: the only user with all rights to it, None for everyone; shared: others may read it and make children.
    """

    data: bytes = b""
    version: int = 0
    owner: str = ""
    made: int = 0
    children: frozenset[str] = frozenset()
    admits: Owner | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A change made by a transaction.

    data: the node itself was created, changed or deleted; otherwise its list of children.
    """

    path: str
    data: bool


class Tree:
    """Nodes by path. Not thread-safe."""

    def __init__(self) -> None:
        self._nodes: dict[str, TreeNode] = {"/": TreeNode()}
        self._undo: dict[str, TreeNode | None] = {}
        self._changes: list[Change] = []

    def get(self, path: str, user: Owner | None) -> TreeNode | None:
        """The node, None when it does not exist. Raises AccessDenied."""
        node = self._nodes.get(path)
        if node is not None and not node.shared:
            _need(path, node, user)
        return node

    def children(self, path: str, user: Owner | None) -> tuple[str, ...] | None:
        """Sorted names, None for a node that does not exist. Raises AccessDenied."""
        node = self.get(path, user)
        return None if node is None else tuple(sorted(node.children))

    def drop_owned_by(self, session: str) -> tuple[Change, ...]:
        """Deletes the ephemeral nodes of a session, as the server itself."""
        owned = [(path, node) for path, node in self._nodes.items() if node.owner == session]
        self._undo, self._changes = {}, []
        for path, node in owned:
            self._delete(path, node)
        return tuple(self._changes)

    def transact(
        self, operations: Sequence[Operation], session: str, user: Owner | None
    ) -> tuple[tuple[str, ...], tuple[Change, ...]]:
        """Returns the paths and the changes. Raises Conflict or AccessDenied, then nothing was done."""
        self._undo, self._changes = {}, []
        try:
            paths = tuple(self._apply(operation, session, user) for operation in operations)
        except (Conflict, AccessDenied):
            for path, node in self._undo.items():
                if node is None:
                    self._nodes.pop(path, None)
                else:
                    self._nodes[path] = node
            raise
        return paths, tuple(self._changes)

    def _apply(self, operation: Operation, session: str, user: Owner | None) -> str:
        if isinstance(operation, Create):
            return self._create(operation, session, user)
        node = self._nodes.get(operation.path)
        if node is None:
            raise Conflict(operation.path, "does not exist")
        if operation.version is not None and operation.version != node.version:
            raise Conflict(operation.path, "was changed by someone else")
        self._admit(operation, node, user)
        match operation:
            case Put(path, data):
                self._set(path, dataclasses.replace(node, data=data, version=node.version + 1))
                self._changes.append(Change(path, data=True))
            case Delete(path):
                self._delete(path, node)
            case Check():
                pass
            case _:
                assert_never(operation)
        return operation.path

    def _admit(self, operation: Operation, node: TreeNode, user: Owner | None) -> None:
        """As ZooKeeper: to delete a node is a right on its parent, to check it is to read it."""
        if isinstance(operation, Delete):
            above = operation.path.rpartition("/")[0] or "/"
            _need(operation.path, self._nodes[above], user)
        elif not (isinstance(operation, Check) and node.shared):
            _need(operation.path, node, user)

    def _create(self, operation: Create, session: str, user: Owner | None) -> str:
        above, _, name = operation.path.rpartition("/")
        parent_path = above or "/"
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise Conflict(operation.path, "does not exist")  # ZooKeeper's word for a missing parent
        if not parent.shared:
            _need(operation.path, parent, user)
        if parent.owner:
            raise Conflict(operation.path, "has a parent that is ephemeral")
        if operation.sequential:
            name = f"{name}{parent.made:010d}"
        path = f"{above}/{name}"
        if path in self._nodes:
            raise Conflict(operation.path, "exists already")
        owner = session if operation.ephemeral else ""
        self._set(path, TreeNode(operation.data, owner=owner, admits=user, shared=operation.shared))
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


def _need(path: str, node: TreeNode, user: Owner | None) -> None:
    if node.admits is not None and node.admits != user:
        raise AccessDenied(path)
