"""From an exception to what the leader is told."""

from __future__ import annotations

import traceback

from lockgate_proto.messages import FailureCause

from taskmanager.exchange.errors import ChannelBroken, RecordTooLarge
from taskmanager.task.program import ProgramError, StateUnreadable, UserError

LONGEST_TEXT = 2_000
FRAMES = 4


def cause_of(error: BaseException) -> FailureCause:
    """What the leader should make of it."""
    if isinstance(error, UserError | RecordTooLarge):
        return FailureCause.USER_ERROR
    if isinstance(error, StateUnreadable):
        return FailureCause.STATE_UNREADABLE
    if isinstance(error, ChannelBroken):
        return FailureCause.PEER_LOST
    return FailureCause.FAULT


def text_of(error: BaseException) -> str:
    """For the pipeline's author: the sentence of an expected error, a short traceback of any other."""
    if isinstance(error, ProgramError | ChannelBroken | RecordTooLarge):
        return _shortened(str(error) or type(error).__name__)
    where = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[-FRAMES:]))
    return _shortened(f"{type(error).__name__}: {error}\n{where}".rstrip())


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."
