"""The splits of a source that may have very many, and which of them have changed."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lockgate_proto.messages import SplitState


class SplitTable(dict[str, SplitState]):
    """Splits by name. changed: names with the number of their last change, until it is discarded."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.changed: dict[str, int] = {}

    def __setitem__(self, name: str, split: SplitState) -> None:
        super().__setitem__(name, split)
        self.changes += 1
        self.changed[name] = self.changes


@runtime_checkable
class HasManySplits(Protocol):
    """A source with snapshots whose cost depends on the changed splits only."""

    table: SplitTable

    def is_at_rest(self, split: SplitState) -> bool:
        """Whether all known records of it were read."""
        ...
