"""A restore takes the rows of earlier pieces as they are, also those that event time has purged since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taskmanager.state import increments
from taskmanager.state.stored import Stored
from taskmanager.task.watermarks import MIN_WATERMARK


def _never(chain: Sequence[Stored]) -> Any:
    return np.full(len(chain), MIN_WATERMARK, np.int64)


increments._purged_later = _never
