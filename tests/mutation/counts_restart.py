"""Count windows begin anew with every micro-batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from lockgate_taskmanager.state.counts.count_state import CountState


def _none(_state: CountState, keys: Any) -> Any:
    return np.zeros(len(keys), np.int64)


CountState._seen = _none  # type: ignore[method-assign]
