"""Says in the log that a clock is behind processing time, which then runs slowly: windows and timers are late."""

from __future__ import annotations

import logging

from lockgate_common.recurring_log import RecurringLog

LOG = logging.getLogger(__name__)
TOLERATED_MS = 1_000


class LateClock:
    """The clock of one operator's processing time. Used from the subtask's own thread."""

    def __init__(self, operator_id: str, recurring: RecurringLog | None = None) -> None:
        """recurring: bounds the lines; None: a new one."""
        self._operator_id = operator_id
        self._recurring = recurring or RecurringLog()
        self._is_late = False  # and was said to be

    def note(self, behind_ms: int) -> None:
        """behind_ms: by how much the clock is behind processing time at this moment."""
        if behind_ms > TOLERATED_MS:
            self._is_late = True
            self._recurring.warning(
                LOG,
                "late",
                "operator '%s': the clock is %.1f s behind processing time, which runs at half speed"
                " until the clock has caught up, in %.0f s; wait, or start a new job from a savepoint without the state"
                " of this operator",
                self._operator_id,
                behind_ms / 1000,
                2 * behind_ms / 1000,
            )
        elif self._is_late and not behind_ms:
            self._is_late = False
            self._recurring.info(
                LOG,
                "caught up",
                "operator '%s': the clock has caught up with processing time",
                self._operator_id,
            )
