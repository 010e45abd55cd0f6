"""Events and effects of the LeaderElection machine, and its view of ZooKeeper.

`generation` numbers the session objects of one coordinator: 1, 2, ... Events of earlier sessions are late and ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from lockgate_common.addresses import ProbeAnswer as ProbeAnswer
from lockgate_proto.messages import LeaderRecord

from lockgate_ha.grant import LeadershipGrant


@dataclass(frozen=True, slots=True)
class Contender:
    """A coordinator in line. name: its node below `/contenders`; the line is ordered by the number at its end."""

    name: str
    record: LeaderRecord

    @property
    def position(self) -> int:
        """The number that ZooKeeper appended. Raises ValueError if `is_contender_name` is False."""
        return int(self.name.rsplit("-", 1)[1])


_CONTENDER_NAME = re.compile(r"c-.+-[0-9]{10}", re.ASCII)


def is_contender_name(name: str) -> bool:
    """Whether a node below `/contenders` has a name that a coordinator gives."""
    return _CONTENDER_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class View:
    """ZooKeeper's data, read at one moment.

    epoch, epoch_version: content and version of `/epoch`; leader: `/leader` or None; leader_is_mine: its ephemeral node
    belongs to the session that read it; contenders: in line order; challenged: `/challenge` exists.
    """

    epoch: int
    epoch_version: int
    leader: LeaderRecord | None
    leader_is_mine: bool
    contenders: tuple[Contender, ...]
    challenged: bool = False


class ClaimFailure(Enum):
    """Why a grant transaction did not succeed."""

    REFUSED = "refused"  # another coordinator was faster, or the view was outdated
    UNAVAILABLE = "unavailable"  # nothing was written
    UNKNOWN = "unknown"  # the next view shows the outcome


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """The session is connected, for the first time or again."""

    generation: int
    session: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is lost; the session may survive."""

    generation: int


@dataclass(frozen=True, slots=True)
class Expired:
    """ZooKeeper has expired the session, and deleted its ephemeral nodes."""

    generation: int


@dataclass(frozen=True, slots=True)
class Joined:
    """This coordinator's contender exists."""

    generation: int
    contender: str


@dataclass(frozen=True, slots=True)
class Viewed:
    """A view was read. unix_us: wall clock of the reading, for display."""

    generation: int
    view: View
    unix_us: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Join or ReadView failed; retried after a pause while connected."""

    generation: int


@dataclass(frozen=True, slots=True)
class Changed:
    """A watch fired."""

    generation: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The grant transaction succeeded: this coordinator leads under `token`."""

    generation: int
    token: int


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """The grant transaction failed, or its outcome is unknown."""

    generation: int
    failure: ClaimFailure


@dataclass(frozen=True, slots=True)
class LeaderGone:
    """A stream to the leader of `token` was lost."""

    token: int
    unix_us: int


@dataclass(frozen=True, slots=True)
class NotLeading:
    """The process at the leader's address reports that it does not hold `token`."""

    token: int
    unix_us: int


@dataclass(frozen=True, slots=True)
class Unanswering:
    """The process at the address of the leader of `token` accepts connections, but has not answered for long."""

    token: int
    unix_us: int


@dataclass(frozen=True, slots=True)
class Silent:
    """The leader of `token` sends nothing any more; it has `patience_ms` to answer a call or a challenge."""

    token: int
    unix_us: int
    patience_ms: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The leader of `token`, reported as silent, has sent something."""

    token: int


@dataclass(frozen=True, slots=True)
class Probed:
    """The TCP probe of the leader of `token` is complete."""

    token: int
    answer: ProbeAnswer


@dataclass(frozen=True, slots=True)
class Challenged:
    """`/challenge` exists, created by any coordinator; or it could not be created (`posted` is False)."""

    generation: int
    token: int
    posted: bool


@dataclass(frozen=True, slots=True)
class StepDown:
    """Resign leadership: ZooKeeper refused a write under it.

    token: of the grant that this refers to, 0 for any. A refusal of an earlier grant does not end a later one of the
    same coordinator.
    """

    reason: str
    token: int = 0


@dataclass(frozen=True, slots=True)
class TokenSeen:
    """A peer names a token. One above the own is a reason to ask ZooKeeper, which alone knows the granted tokens."""

    reason: str
    token: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A time requested with WakeAt has come (early or additional ticks are harmless)."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The coordinator stops."""

    release: bool


Event = (
    Connected
    | Disconnected
    | Expired
    | Joined
    | Viewed
    | Failed
    | Changed
    | Claimed
    | ClaimFailed
    | LeaderGone
    | NotLeading
    | Unanswering
    | Silent
    | Answered
    | Probed
    | Challenged
    | StepDown
    | TokenSeen
    | Tick
    | Stop
)


# -- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a new session object with this generation; the former one is dead."""

    generation: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session; `abandon` leaves its ephemeral nodes to expire."""

    abandon: bool


@dataclass(frozen=True, slots=True)
class Join:
    """Make sure that exactly one contender of this coordinator exists.

    `rejoin`: delete it first, to move to the end of the line.
    """

    generation: int
    rejoin: bool


@dataclass(frozen=True, slots=True)
class ReadView:
    """Read a View and watch its nodes."""

    generation: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Try a TCP connection to the leader of `token`."""

    token: int
    address: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """Create `/challenge`, unless it exists: the leader of `token` must prove through ZooKeeper that it is alive."""

    generation: int
    token: int


@dataclass(frozen=True, slots=True)
class AnswerChallenge:
    """Delete `/challenge`: the leader is alive."""

    generation: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The grant transaction: check the own contender, raise `/epoch` to `token`, replace `/leader`.

    replaces_leader: a stale `/leader` exists and is deleted
    unanswered: only while `/challenge` exists, which is deleted: the leader has not proved that it is alive
    why: the reason for the claim, for the log
    """

    generation: int
    contender: str
    epoch_version: int
    token: int
    replaces_leader: bool
    unanswered: bool = False
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Release:
    """Delete `/leader`, if it is still of `token` and ours, together with the own contender, so that the next one can
    claim.
    """

    generation: int
    token: int
    contender: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this monotonic time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Granted:
    """Notify the listener."""

    grant: LeadershipGrant
    detected_unix_us: int | None


@dataclass(frozen=True, slots=True)
class Suspended:
    """Notify the listener."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Notify the listener."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Notify the listener."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Notify the listener."""

    leader: LeaderRecord | None


Effect = (
    OpenSession
    | CloseSession
    | Join
    | ReadView
    | Probe
    | Challenge
    | AnswerChallenge
    | Claim
    | Release
    | WakeAt
    | Granted
    | Suspended
    | Resumed
    | Revoked
    | LeaderChanged
)
