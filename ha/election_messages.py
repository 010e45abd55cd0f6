"""Events and effects of the LeaderElection machine, and what it knows of the world.

`generation` numbers the session objects of one coordinator: 1, 2, ... An event of an earlier one is late and ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from lockgate_proto.messages import LeaderRecord

from ha.grant import LeadershipGrant


@dataclass(frozen=True, slots=True)
class Contender:
    """A coordinator in line. name: its node below `/contenders`; the line is ordered by the number it ends with."""

    name: str
    record: LeaderRecord

    @property
    def position(self) -> int:
        """The number that ZooKeeper appended. Raises ValueError where `is_contender_name` is False."""
        return int(self.name.rsplit("-", 1)[1])


_CONTENDER_NAME = re.compile(r"c-.+-[0-9]{10}", re.ASCII)


def is_contender_name(name: str) -> bool:
    """Whether a node below `/contenders` is named as coordinators name theirs."""
    return _CONTENDER_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class View:
    """What ZooKeeper holds, read at one moment.

    epoch, epoch_version: content and version of `/epoch`; leader: `/leader` or None; leader_is_mine: its ephemeral
    node belongs to the session that read it; contenders: in line order; challenged: `/challenge` exists.
    """

    epoch: int
    epoch_version: int
    leader: LeaderRecord | None
    leader_is_mine: bool
    contenders: tuple[Contender, ...]
    challenged: bool = False


class ProbeAnswer(Enum):
    """What a TCP connection to the leader's address met."""

    REFUSED = "refused"  # nobody listens: its process is gone
    ACCEPTED = "accepted"  # the process is there, or at least its kernel
    NONE = "none"  # unreachable, unknown or silent: proves nothing


class ClaimFailure(Enum):
    """Why a grant transaction did not answer with a grant."""

    REFUSED = "refused"  # someone else was faster, or the view was old
    UNAVAILABLE = "unavailable"  # nothing was written
    UNKNOWN = "unknown"  # the next view shows what happened


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """The session is connected, for the first time or again."""

    generation: int
    session: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is away; the session may survive."""

    generation: int


@dataclass(frozen=True, slots=True)
class Expired:
    """ZooKeeper has ended the session, and with it the ephemeral nodes."""

    generation: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The own contender exists."""

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
    """Join or ReadView did not work out; tried again after a pause while connected."""

    generation: int


@dataclass(frozen=True, slots=True)
class Changed:
    """A watch fired."""

    generation: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The grant transaction was done: this coordinator leads under `token`."""

    generation: int
    token: int


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """The grant transaction was not, or not certainly, done."""

    generation: int
    failure: ClaimFailure


@dataclass(frozen=True, slots=True)
class LeaderGone:
    """Someone lost the stream to the leader of `token`."""

    token: int
    unix_us: int


@dataclass(frozen=True, slots=True)
class NotLeading:
    """The process at the leader's address says that it does not hold `token`."""

    token: int
    unix_us: int


@dataclass(frozen=True, slots=True)
class Unanswering:
    """The process at the address of the leader of `token` takes connections, and has answered none for long."""

    token: int
    unix_us: int


@dataclass(frozen=True, slots=True)
class Probed:
    """The TCP probe of the leader of `token` is over."""

    token: int
    answer: ProbeAnswer


@dataclass(frozen=True, slots=True)
class Challenged:
    """`/challenge` exists, by this coordinator or another one; or it could not be made (`posted` is False)."""

    generation: int
    token: int
    posted: bool


@dataclass(frozen=True, slots=True)
class StepDown:
    """The own leadership is to end: ZooKeeper refused a write under it.

    token: of the grant that this is about, 0 for whichever is held. What was said of an earlier grant does not end a
    later one of the same coordinator.
    """

    reason: str
    token: int = 0


@dataclass(frozen=True, slots=True)
class TokenSeen:
    """A peer names a token. One above the own is a reason to ask ZooKeeper, which alone knows what was granted."""

    reason: str
    token: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time asked for with WakeAt has come (early or extra ones do no harm)."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The coordinator ends."""

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
    """Make sure that exactly one own contender exists. `rejoin`: delete it first, so that it stands last in line."""

    generation: int
    rejoin: bool


@dataclass(frozen=True, slots=True)
class ReadView:
    """Read a View and watch what it was read from."""

    generation: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Try a TCP connection to the leader of `token`."""

    token: int
    address: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """Make `/challenge`, unless it exists: the leader of `token` is to prove by way of ZooKeeper that it lives."""

    generation: int
    token: int


@dataclass(frozen=True, slots=True)
class AnswerChallenge:
    """Delete `/challenge`: the leader lives."""

    generation: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The grant transaction: check the own contender, raise `/epoch` to `token`, replace `/leader`.

    replaces_leader: a stale `/leader` exists and is deleted
    unanswered: only while `/challenge` stands, which is deleted: the leader has not proved that it lives
    why: what made the way free, in words, for the log
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
    """Delete `/leader`, if it is still of `token` and ours, together with the own contender, for the next to go on."""

    generation: int
    token: int
    contender: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this monotonic time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Granted:
    """Tell the listener."""

    grant: LeadershipGrant
    detected_unix_us: int | None


@dataclass(frozen=True, slots=True)
class Suspended:
    """Tell the listener."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Tell the listener."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Tell the listener."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Tell the listener."""

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
