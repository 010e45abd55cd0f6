"""What callers may be let in for. Pure.

```
admin ── operate ──┐
  └───── code ─── submit ── read
```
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """A role includes what is right of it in the drawing above."""

    READ = "read"  # see jobs and processes
    SUBMIT = "submit"  # jobs of SQL and built-in operators
    CODE = "code"  # jobs with Python functions and connectors, which run as the cluster's user
    OPERATE = "operate"  # savepoint, stop, cancel, release, rescale, dispose
    ADMIN = "admin"


_INCLUDED = {
    Role.READ: (),
    Role.SUBMIT: (Role.READ,),
    Role.CODE: (Role.SUBMIT, Role.READ),
    Role.OPERATE: (Role.READ,),
    Role.ADMIN: tuple(Role),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. name: for the audit log; roles: as they were given."""

    name: str
    roles: frozenset[Role]

    def may(self, role: Role) -> bool:
        """True when one of the roles is or includes this one."""
        return any(role is given or role in _INCLUDED[given] for given in self.roles)

    def refusal(self, role: Role, what: str = "this") -> str:
        """Why it may not do `what`, which needs the role, as a sentence without its end; "" when it may."""
        return "" if self.may(role) else f"{what} needs the role {role.value}, which {self.name} does not have"


OWNER = Principal("the secret", frozenset({Role.ADMIN}))
"""Whoever knows the cluster's secret."""

ANONYMOUS = Principal("anonymous", frozenset())
"""Who shows nothing, and calls what is free."""


def roles_named(names: Iterable[str]) -> frozenset[Role]:
    """Raises ValueError with a sentence for a name that is none."""
    known = {role.value: role for role in Role}
    wanted = list(names)
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValueError(f"{unknown[0] if unknown else 'nothing'!r} is not a role; valid roles are {', '.join(known)}")
    return frozenset(known[name] for name in wanted)
