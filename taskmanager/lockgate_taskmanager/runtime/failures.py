"""Classifies exceptions for the report to the leader."""

from __future__ import annotations

import traceback
from dataclasses import replace

import pyarrow as pa
from lockgate_common.masking import masked
from lockgate_proto.messages import FailureCause, FailurePlace

from lockgate_taskmanager.exchange.errors import ChannelBroken, RecordTooLarge
from lockgate_taskmanager.spark.raised import traceback_of
from lockgate_taskmanager.task.program import (
    DataError,
    Defect,
    ProgramError,
    StateUnreadable,
    StorageUnavailable,
    UserCodeFailed,
    UserError,
)

LONGEST_TEXT = 2_000
LONGEST_TRACEBACK = 8_000
FRAMES = 4
_DEFECTS = (
    pa.ArrowException,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)


def cause_of(error: BaseException) -> FailureCause:
    """The failure cause for the leader."""
    if isinstance(error, UserError):
        return FailureCause.USER_ERROR
    if isinstance(error, DataError | RecordTooLarge):
        return FailureCause.DATA_ERROR
    if isinstance(error, UserCodeFailed):
        return FailureCause.USER_CODE
    if isinstance(error, StateUnreadable):
        return FailureCause.STATE_UNREADABLE
    if isinstance(error, StorageUnavailable):
        return FailureCause.STORAGE_AWAY
    if isinstance(error, ChannelBroken):
        return FailureCause.PEER_LOST
    if isinstance(error, Defect) or _is_defect(error):
        return FailureCause.INTERNAL_ERROR
    return FailureCause.FAULT


def _is_defect(error: BaseException) -> bool:
    """Not explained by the environment: our code, or Arrow's, cannot handle its input."""
    if isinstance(error, ProgramError | OSError | MemoryError):
        return False
    return isinstance(error, _DEFECTS)


def text_of(error: BaseException) -> str:
    """For the pipeline's author: the sentence of an expected error, a short traceback of any other."""
    if isinstance(error, ProgramError | ChannelBroken | RecordTooLarge):
        return _shortened(str(error) or type(error).__name__)
    where = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[-FRAMES:]))
    return _shortened(f"{type(error).__name__}: {error}\n{where}".rstrip())


def place_of(error: BaseException, known: FailurePlace | None) -> FailurePlace | None:
    """Where it failed, with the traceback of the author's code; of a long one the end, where the error is."""
    text = _readable(traceback_of(error))
    if not text:
        return known
    if len(text) > LONGEST_TRACEBACK:
        text = f"... {text[-LONGEST_TRACEBACK:]}"
    return replace(known or FailurePlace(), traceback=text)


def _readable(text: str) -> str:
    """A file's name may be no Unicode, and then no message."""
    return masked(text).encode("utf-8", "backslashreplace").decode()


def _shortened(text: str) -> str:
    text = _readable(text)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."
