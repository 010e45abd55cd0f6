"""What a completed checkpoint holds, read from its files as they were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockgate_coordinator.checkpoint.handles import handles
from lockgate_proto.messages import CheckpointMetadata, StateHandle, StateKind, SubtaskState

from tests.simulation.flow import Counts, Model
from tests.simulation.storage import Transaction


class Cut:
    """counts: of every counting vertex; sealed: transactions by sink vertex, as often as the snapshot has them.

    owned_twice: sentences about keys that two subtasks of a vertex hold.
    """

    def __init__(self, model: Model, metadata: CheckpointMetadata, content: Callable[[StateHandle], Any]) -> None:
        """content: what is in a state file."""
        self.counts: dict[str, Counts] = {name: {} for name in model.counting}
        self.sealed: dict[str, list[Transaction]] = {name: [] for name in (*model.ledgers, *model.tables)}
        self.owned_twice: list[str] = []
        for state in metadata.subtasks:
            self._take(state, content)

    def _take(self, state: SubtaskState, content: Callable[[StateHandle], Any]) -> None:
        owned: Counts = {}
        for operator in state.operators:
            if operator.kind is StateKind.SOURCE_STATE:
                continue
            for found in [content(handle) for handle in handles(operator)]:
                if operator.kind is StateKind.KEYED_STATE:
                    owned |= dict(found)  # an increment over what is before it
                else:
                    self.sealed[state.vertex_id] += found
        if not owned:
            return
        known = self.counts[state.vertex_id]
        if shared := sorted(owned.keys() & known.keys()):
            place = f"{state.vertex_id}[{state.subtask}]"
            self.owned_twice.append(f"keys {shared} of {place} belong to another subtask as well")
        known |= owned
