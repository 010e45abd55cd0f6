"""Which versions of Lockgate work together, and which stored records one can read. Pure but for its own version.

    messages   REVISION, from OLDEST_REVISION on    two processes, see `release_problem`
    records    RECORD_FORMAT and every lower one    ZooKeeper, see `is_newer` and `record_format`

A release raises a number only where adding a field is not enough: where a process that does not know the change would
do something wrong. docs/upgrade.md says what follows for a rolling upgrade.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from lockgate_proto.messages import Release

REVISION = 2
"""Of the messages between processes.

2: ChannelState.moved. Who does not know it gives records in flight to a subtask that does not own their keys.
"""

OLDEST_REVISION = 2
"""The lowest revision that this version works with."""

RECORD_FORMAT = 2
"""The highest of the records in ZooKeeper that this version writes; it reads this and every lower one.

2: AttemptRecord.slot_attempts and first_positions. Who does not know them rewrites the record without them, adopts
beside subtasks that were replaced, or reads a source from another place.
"""

PLAIN_FORMAT = 1
"""Of a record without any of those fields, which earlier versions understand as well."""

_FORMAT_OF = {"slot_attempts": 2, "first_positions": 2}

MAX_VERSION_CHARS = 64


@cache
def own_release() -> Release:
    """Of this process."""
    return Release(own_version(), REVISION, OLDEST_REVISION)


@cache
def own_version() -> str:
    """Of the installed package."""
    try:
        return version("lockgate")
    except PackageNotFoundError:  # a source tree that is not installed
        return "unknown"


def release_problem(mine: Release, me: str, theirs: Release | None, them: str) -> str:
    """Why two processes do not fit, one sentence for the operator of `them`; "" when they do.

    me, them: the processes, as in "this coordinator". theirs: None: a process that does not say.
    """
    other = theirs or Release()
    name, revision = f"Lockgate {other.version}" if other.version else "an early Lockgate", other.revision or 1
    if other.oldest > mine.revision:
        return (
            f"{them} runs {name}, which works with revision {other.oldest} of the messages and later, but {me}"
            f" runs {mine.version} with revision {mine.revision}: upgrade {me} first, or start {them} with"
            f" {mine.version}"
        )
    if mine.oldest > revision:
        return (
            f"{them} runs {name} with revision {revision} of the messages, but {me} runs {mine.version}, which"
            f" works with revision {mine.oldest} and later: upgrade {them} to {mine.version}"
        )
    return ""


def is_newer(format_version: int) -> bool:
    """Whether a record in ZooKeeper was written by a version whose records this one cannot read."""
    return format_version > RECORD_FORMAT


def record_format(record: object) -> int:
    """The lowest format in which no reader passes over a field that the record uses."""
    used = (number for name, number in _FORMAT_OF.items() if getattr(record, name, ()))
    return max(used, default=PLAIN_FORMAT)


def newer_text(what: str, found: int, known: int) -> str:
    """For the operator: what was written by a newer version is left as it is."""
    return (
        f"{what} has format {found}, and Lockgate {own_version()} reads formats up to {known}: a newer version has "
        "written it, so it is left as it is; run that version here, too"
    )
