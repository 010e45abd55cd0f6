"""User errors. Every message is a readable sentence that says what to do next."""

from __future__ import annotations


class UserError(Exception):
    """Base of the errors that a command shows as one line, without a traceback, and exits with `exit_code`."""

    exit_code = 2


class SettingsError(UserError):
    """A settings file, environment variable or option that cannot be used."""
