"""The results of a drill, and their JSON form. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

CLOCK_OFF_S = 3_600
"""How far a drill sets a clock off, ahead or back: far more than a job of a drill takes."""


class Target(Enum):
    """What is damaged. All but the first three are for the drill's own cluster only."""

    LEADER = "leader"
    STANDBY = "standby"
    TASKMANAGER = "taskmanager"
    ZOOKEEPER = "zookeeper"
    LEADER_AND_TASKMANAGER = "leader and taskmanager"  # both at once
    FROZEN_LEADER = "frozen leader"  # SIGSTOP; it wakes up once the job has recovered
    FROZEN_TASKMANAGER = "frozen taskmanager"
    STORAGE = "storage"  # away for some seconds
    FULL_STORAGE = "full storage"  # for some seconds
    LINK_LEADER_ZOOKEEPER = "link leader-zookeeper"  # cut for some seconds
    LINK_LEADER_TASKMANAGER = "link leader-taskmanager"
    LINK_TASKMANAGERS = "link taskmanagers"
    ONE_WAY_LEADER_ZOOKEEPER = "one way leader-zookeeper"  # in one direction only, which the seed decides
    ONE_WAY_LEADER_TASKMANAGER = "one way leader-taskmanager"
    ONE_WAY_TASKMANAGERS = "one way taskmanagers"
    LEADER_CLOCK = "clock of leader"  # an hour off, until the next one is struck
    TASKMANAGER_CLOCK = "clock of taskmanager"

    @property
    def is_one_way(self) -> bool:
        """Whether one direction of a link is cut."""
        return self in (
            Target.ONE_WAY_LEADER_ZOOKEEPER,
            Target.ONE_WAY_LEADER_TASKMANAGER,
            Target.ONE_WAY_TASKMANAGERS,
        )

    @property
    def is_link(self) -> bool:
        """Whether a link is cut. What follows depends on the timeouts: another leader, another attempt, or neither."""
        return self.is_one_way or self in (
            Target.LINK_LEADER_ZOOKEEPER,
            Target.LINK_LEADER_TASKMANAGER,
            Target.LINK_TASKMANAGERS,
        )

    @property
    def is_clock(self) -> bool:
        """Whether a clock is set off."""
        return self in (Target.LEADER_CLOCK, Target.TASKMANAGER_CLOCK)

    @property
    def is_tampering(self) -> bool:
        """Whether something else than a process is damaged."""
        return self.is_link or self.is_clock or self in (Target.STORAGE, Target.FULL_STORAGE)

    @property
    def strikes_leader(self) -> bool:
        """Whether another leader follows."""
        return self in (Target.LEADER, Target.LEADER_AND_TASKMANAGER, Target.FROZEN_LEADER)

    @property
    def strikes_attempt(self) -> bool:
        """Whether another attempt always follows."""
        return self in (Target.TASKMANAGER, Target.LEADER_AND_TASKMANAGER, Target.FROZEN_TASKMANAGER)


class Mode(Enum):
    """How a job goes on after a kill.

    REGION: only what was connected with the killed process was restarted; no record goes between that and the rest.
    PARTIAL: only what it ran was restarted, although records do: the rest ran on and sent them again.
    """

    REATTACH = "reattach"
    REGION = "region"
    PARTIAL = "partial"
    RESTART = "restart"

    @property
    def is_in_part(self) -> bool:
        """Whether some subtasks were restarted, and others ran on."""
        return self in (Mode.REGION, Mode.PARTIAL)


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL, or other damage, and its consequences, in ms since then; None: it caused no such event, or that
    never happened. Where the storage was away or full, in ms since it was usable again.

    detected_ms: the new leader saw the old one go (leader), the leader saw the task manager go (taskmanager);
    granted_ms: the new leader was granted leadership; deployed_ms: every subtask of the next attempt ran, or the
    running one was adopted; first_record_ms: the first records of the next attempt beyond the snapshot reached a sink
    operator, or the running one was seen to write on; first_checkpoint_ms: the first snapshot after the kill was
    completed, and so committed. mode: None where the kill concerned neither leader nor attempt.

    restarted_subtasks: in all attempts that followed; records_read_again: by them, or by the adopted one (at least, see
    `continuity.went_back`); throughput_ratio: the records that
    the sources read for the first time in the second from the kill on, against the mean of the seconds before. None:
    not measured. progress: seconds since the kill, and the records read by then; only of a chaos drill.
    """

    target: Target
    pid: int
    detected_ms: float | None = None
    granted_ms: float | None = None
    deployed_ms: float | None = None
    first_record_ms: float | None = None
    first_checkpoint_ms: float | None = None
    mode: Mode | None = None
    restarted_subtasks: int | None = None
    records_read_again: int | None = None
    throughput_ratio: float | None = None
    progress: tuple[tuple[float, int], ...] = ()

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
            "restarted_subtasks": self.restarted_subtasks,
            "records_read_again": self.records_read_again,
            "throughput_ratio": self.throughput_ratio,
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
    """The result of one drill. `problems`: sentences about other failures; empty on a pass.

    stopped: why it ended before all kills were done and checked; empty if they were.
    """

    seed: int
    kills: tuple[Kill, ...]
    records: RecordCheck
    checkpoints_completed: int
    checkpoints_aborted: int
    problems: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def passed(self) -> bool:
        """True when no record was lost or duplicated and every kill was survived."""
        return self.records.is_exact and not self.problems and not self.stopped

    @property
    def failed(self) -> bool:
        """True when something wrong was found, however far the drill came."""
        return bool(self.records.lost or self.records.duplicated or self.problems) or not (self.passed or self.stopped)

    @property
    def verdict(self) -> str:
        """pass, fail or incomplete."""
        return "pass" if self.passed else "fail" if self.failed else "incomplete"

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
            "problems": list(self.problems),
            "stopped": self.stopped or None,
            "verdict": self.verdict,
        }
