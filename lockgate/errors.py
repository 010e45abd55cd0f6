"""User errors. Every message is a readable sentence that says what to do next."""

from __future__ import annotations

from pathlib import Path

_LONGEST = 4_000  # characters: what a message quotes out of a file may be of any length


class UserError(Exception):
    """Base of the errors that a command shows as one line, without a traceback, and exits with `exit_code`."""

    exit_code = 2

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... (there is more)"


class SettingsError(UserError):
    """A settings file, environment variable or option that cannot be used."""


class ClusterFileError(SettingsError):
    """The `cluster.json` of a local cluster is missing or unreadable. directory: where it should be."""

    def __init__(self, text: str, directory: Path) -> None:
        super().__init__(text)
        self.directory = directory
