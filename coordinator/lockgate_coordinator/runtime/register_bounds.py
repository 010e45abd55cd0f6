"""The bounds of a task manager's Register message.

Admitted values are kept for the term, shown to clients, stored in attempt records and processed on the deciding thread.
"""

from __future__ import annotations

import re

from lockgate_common.settings import MAX_SLOTS
from lockgate_proto.messages import AttemptId, Register
from lockgate_proto.release import MAX_VERSION_CHARS

from lockgate_coordinator.graph.bounds import quoted

MAX_RUNNING = 4 * MAX_SLOTS
"""The most attempts that a task manager may still run: one for each slot, and some that are being torn down."""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,64}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")


def register_problem(task_manager_id: str, register: Register) -> str:
    """Why this Register is refused, a sentence for the operator of the task manager; "" when it is not."""
    if not _ID.fullmatch(task_manager_id):
        return f"{quoted(task_manager_id)} is not a task manager id: use 1 to 64 of A-Z a-z 0-9 . _ -"
    if not 1 <= register.slots <= MAX_SLOTS:
        return f"task manager {task_manager_id} offers {register.slots} slots: it must be between 1 and {MAX_SLOTS}"
    found = _ADDRESS.fullmatch(register.exchange_address)
    if found is None or not 1 <= int(found[1]) <= 65_535:
        return f"task manager {task_manager_id} needs an exchange host:port, not {quoted(register.exchange_address)}"
    if len(register.incarnation) > 64:
        return (
            f"task manager {task_manager_id} has the incarnation {quoted(register.incarnation)}: at most 64 characters"
        )
    if register.release is not None and len(register.release.version) > MAX_VERSION_CHARS:
        return f"task manager {task_manager_id} reports the version {quoted(register.release.version)}"
    if len(register.running) > MAX_RUNNING:
        count = len(register.running)
        return f"task manager {task_manager_id} reports {count} attempts: the limit is {MAX_RUNNING}"
    if len(register.progress) > len(register.running):
        return f"task manager {task_manager_id} reports the progress of more attempts than it runs"
    for attempt in register.running:
        if not _is_attempt(attempt):
            return f"task manager {task_manager_id} reports an invalid attempt: {quoted(str(attempt))}"
    return ""


def _is_attempt(attempt_id: AttemptId) -> bool:
    return bool(_KEY.fullmatch(attempt_id.job_key) and _KEY.fullmatch(attempt_id.run_id)) and attempt_id.attempt >= 1
