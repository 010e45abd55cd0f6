"""The results of a drill, and their JSON form. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Target(Enum):
    """The kind of process to kill."""

    LEADER = "leader"
    STANDBY = "standby"
    TASKMANAGER = "taskmanager"
    ZOOKEEPER = "zookeeper"


class Mode(Enum):
    """How a job goes on after a kill."""

    REATTACH = "reattach"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL and its consequences, in ms since it was sent; None: the kill caused no such event, or it never
    happened.

    detected_ms: the new leader saw the old one go (leader), the leader saw the task manager go (taskmanager);
    granted_ms: the new leader was granted leadership; deployed_ms: every subtask of the next attempt ran, or the
    running one was adopted; first_record_ms: the first records of the next attempt beyond the snapshot reached a sink
    operator; first_checkpoint_ms: the first snapshot after the kill was completed, and so committed. mode: None where
    the kill concerned neither leader nor attempt.
    """

    target: Target
    pid: int
    detected_ms: float | None = None
    granted_ms: float | None = None
    deployed_ms: float | None = None
    first_record_ms: float | None = None
    first_checkpoint_ms: float | None = None
    mode: Mode | None = None

    def to_json(self) -> dict[str, Any]:
        """The form in the report file."""
        return {
            "target": self.target.value,
            "pid": self.pid,
            "detected_ms": self.detected_ms,
            "granted_ms": self.granted_ms,
            "deployed_ms": self.deployed_ms,
            "first_record_ms": self.first_record_ms,
            "first_checkpoint_ms": self.first_checkpoint_ms,
            "mode": self.mode.value if self.mode is not None else None,
        }


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """The result of the oracle.

    Counts of records: `expected` were in the input, `lost` of them are not in the ledger, `duplicated` is how many too
    many the ledger contains (second copies, and records that were never in the input).
    """

    expected: int
    lost: int
    duplicated: int

    @property
    def is_exact(self) -> bool:
        """Every record exactly once."""
        return self.expected > 0 and self.lost == 0 and self.duplicated == 0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one drill. `problems`: sentences about other failures; empty on a pass."""

    seed: int
    kills: tuple[Kill, ...]
    records: RecordCheck
    checkpoints_completed: int
    checkpoints_aborted: int
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True when no record was lost or duplicated and every kill was survived."""
        return self.records.is_exact and not self.problems

    def to_json(self) -> dict[str, Any]:
        """The shape of `lockgate drill --json FILE`."""
        return {
            "seed": self.seed,
            "kills": [kill.to_json() for kill in self.kills],
            "records": {
                "expected": self.records.expected,
                "lost": self.records.lost,
                "duplicated": self.records.duplicated,
            },
            "checkpoints": {"completed": self.checkpoints_completed, "aborted": self.checkpoints_aborted},
            "verdict": "pass" if self.passed else "fail",
        }
