"""A cluster's owner in ZooKeeper's terms: what a client says of itself, and the access control lists of its nodes."""

from __future__ import annotations

from typing import Any

from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, make_acl, make_digest_acl

from lockgate_ha.protection import Owner, Protection, maker


def rights(protection: Protection) -> dict[str, Any]:
    """Options of a kazoo client that acts as the owner."""
    found = logins(protection)
    return {"auth_data": found} if found else {}


def logins(protection: Protection) -> list[tuple[str, str]]:
    """The users of a cluster, as kazoo takes them."""
    return [login(user) for user in _users(protection)]


def login(user: Owner) -> tuple[str, str]:
    """One user, as kazoo takes it."""
    return "digest", f"{user.user}:{user.password}"


def handed_over(entries: list[ACL], former: Protection, protection: Protection) -> list[ACL]:
    """The same rights for the users of `protection` in place of those of `former`."""
    successors = dict(zip(_identities(former), _identities(protection), strict=False))
    return [ACL(entry.perms, successors.get(entry.id, entry.id)) for entry in entries]


def _users(protection: Protection) -> tuple[Owner, ...]:
    owner = protection.owner
    return () if owner is None else (owner, maker(protection.secret))


def _identities(protection: Protection) -> list[Id]:
    return [make_digest_acl(user.user, user.password, all=True).id for user in _users(protection)]


def acl_of(protection: Protection, *, shared: bool) -> list[ACL]:
    """Of a node of the cluster. shared: others may read it and make nodes below it."""
    owner = protection.owner
    return list(OPEN_ACL_UNSAFE) if owner is None else acl(owner, read=shared, create=shared)


def acl(owner: Owner, *, read: bool, create: bool = False) -> list[ACL]:
    """Everything for the owner. read, create: others may read the node, and make nodes below it."""
    others = [make_acl("world", "anyone", read=read, create=create)] if read or create else []
    return [make_digest_acl(owner.user, owner.password, all=True), *others]
