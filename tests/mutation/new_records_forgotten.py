"""A restored window with a trigger does not know how many of its records are new."""

from __future__ import annotations

import numpy as np
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.layout import PENDING
from lockgate_taskmanager.state.windows.triggered_state import TriggeredState

_take_up = TriggeredState.take_up


def _without_new(state: TriggeredState, rows: state_file.StoredRows) -> None:
    _take_up(state, rows)
    state._columns.reset(np.arange(len(state._index)), PENDING)


TriggeredState.take_up = _without_new  # type: ignore[method-assign]
