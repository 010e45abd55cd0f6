"""What a job may name whose author may not run code: files, and variables of this process's environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from lockgate_common.places import Places
from lockgate_common.storage import Location

from lockgate_taskmanager.task.program import UserError

_OWN_VARIABLES = "LOCKGATE_"
_WITHOUT = "which needs the role code"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one job. places: None for no limits at all; variables: names that may be used, with * and ?."""

    places: Places | None = None
    variables: tuple[str, ...] = ()

    @property
    def bind(self) -> bool:
        """False for a job whose author may run code."""
        return self.places is not None

    def opened(self, location: Location, subject: str) -> Location:
        """The file to open in place of this one: what is checked is what is opened. Raises UserError."""
        if not self.bind:
            return location
        self.check(location, subject)
        return replace(location, path=os.path.realpath(location.path)) if location.is_local else location

    def check(self, location: Location, subject: str, *, writes: bool = False) -> None:
        """Raises UserError for a place that the job may not use. subject: the place in messages."""
        if location.is_local:
            self.check_path(location.path, subject, writes=writes)
        else:
            self.check_name(location.uri, subject, writes=writes)

    def check_name(self, path_or_uri: str, subject: str, *, writes: bool = False) -> None:
        """The same for the name of a place."""
        if self.places is not None:
            _refuse(self.places.problem(path_or_uri, writes=writes), subject, writes)

    def check_path(self, path: str, subject: str, *, writes: bool = False) -> None:
        """The same for what is opened as a path of this machine, whatever it looks like."""
        if self.places is not None:
            _refuse(self.places.path_problem(path, writes=writes), subject, writes)

    def check_variable(self, name: str, subject: str, is_credential: bool) -> None:
        """Raises UserError for `${name}`. subject: where it stands; is_credential: a password or the like belongs
        there.
        """
        if not self.bind:
            return
        if not is_credential:
            raise UserError(
                f"{subject} ${{{name}}}: in a job of an author without the role code a variable stands only for a"
                " password or key; write the value itself"
            )
        is_allowed = any(fnmatchcase(name, pattern) for pattern in self.variables)
        if not is_allowed or name.upper().startswith(_OWN_VARIABLES):
            raise UserError(
                f"{subject} ${{{name}}}, {_WITHOUT}, or an operator who adds the name to taskmanager.variables"
            )


def _refuse(problem: str, subject: str, writes: bool) -> None:
    if problem:
        raise UserError(f"{subject} cannot be {'written' if writes else 'read'} by this job, {_WITHOUT}: {problem}")


UNLIMITED = Limits()
