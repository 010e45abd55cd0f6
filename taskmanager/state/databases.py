"""Which database the state of an aggregate gets: by its windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import KeyedAggregate, OperatorState, SessionWindow

from taskmanager.state import stored
from taskmanager.state.increments import latest, latest_in_time
from taskmanager.state.restored_rocks import Restore
from taskmanager.state.rocks import RocksStore
from taskmanager.state.session_rocks import SessionRocks
from taskmanager.state.sessions import SessionState
from taskmanager.state.store import KeyedStore, StoreSpec
from taskmanager.state.window_rocks import WindowRocks
from taskmanager.state.windowed import WindowedState


def fresh_database(spec: StoreSpec, schema: pa.Schema, folder: Path, memory_bytes: int) -> KeyedStore:
    """An empty one. Raises UserError, OSError."""
    return _home(spec.aggregation)(spec, schema, folder, memory_bytes)


def restored_database(
    spec: StoreSpec, states: Sequence[OperatorState], checkpoint_id: int, folder: Path, memory_bytes: int
) -> KeyedStore:
    """One that holds what was stored, be it as a database or not. Raises StateUnreadable, OSError, UserError."""
    home = _home(spec.aggregation)

    def make(schema: pa.Schema, folder: Path, memory_bytes: int) -> RocksStore | WindowRocks | SessionRocks:
        return home(spec, schema, folder, memory_bytes)

    def together(chain: Sequence[stored.Stored]) -> stored.Stored:
        keys = len(spec.aggregation.keys)
        if home is WindowRocks:
            return latest_in_time(chain, keys + 1, WindowedState.time_column)
        return latest_in_time(chain, keys, SessionState.time_column) if home is SessionRocks else latest(chain, keys)

    mark = stored.signature(spec.aggregation)
    restore = Restore(spec.operator_id, mark, spec.max_parallelism, spec.key_groups, make, together)
    return restore.run(states, checkpoint_id, folder, memory_bytes)


def _home(operator: KeyedAggregate) -> type[RocksStore | WindowRocks | SessionRocks]:
    if operator.window is None:
        return RocksStore
    return SessionRocks if isinstance(operator.window.kind, SessionWindow) else WindowRocks
