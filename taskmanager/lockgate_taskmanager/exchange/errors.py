"""Errors of the exchange."""

from __future__ import annotations


class ExchangeError(Exception):
    """Base of the exchange's errors."""


class ChannelBroken(ExchangeError):
    """The other end of a channel disappeared without being asked to stop."""


class ChannelClosed(ExchangeError):
    """This end of the channel was closed, because its subtask is cancelled or has ended."""


class ChannelRefused(ExchangeError):
    """The receiver refuses the channel. The message says why."""


class RecordTooLarge(ExchangeError):
    """One record does not fit into a message."""


class CannotRejoin(ExchangeError):
    """The receiver cannot begin again at its checkpoint without its senders. The message says why."""
