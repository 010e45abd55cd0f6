"""What this room raises."""

from __future__ import annotations


class ExchangeError(Exception):
    """Base of this room's errors."""


class ChannelBroken(ExchangeError):
    """The other end of a channel is gone without having been told to stop."""


class ChannelClosed(ExchangeError):
    """This end of the channel was closed, because its subtask is canceled or has ended."""


class ChannelRefused(ExchangeError):
    """The receiver does not take the channel. The message says why."""


class RecordTooLarge(ExchangeError):
    """One record does not fit a message."""
