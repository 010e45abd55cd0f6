"""The number in `/epoch`: the FencingToken of the newest grant, and the end of the token range."""

from __future__ import annotations

from lockgate_ha.errors import CorruptRecord, TokensExhausted

LAST_TOKEN = 2**63 - 1
"""The largest number that a message can carry. No cluster counts that far; a manual edit in ZooKeeper can."""


def token_of(path: str, data: bytes) -> int:
    """The token that the node `path` holds. Raises CorruptRecord."""
    try:
        token = int(data)
    except ValueError as error:
        raise CorruptRecord(path, f"{data[:40]!r} is not a number") from error
    if not 0 <= token <= LAST_TOKEN:
        raise CorruptRecord(path, f"{data[:40]!r} is not a token; tokens go from 0 to {LAST_TOKEN}")
    return token


def need_next(path: str, token: int) -> None:
    """Raises TokensExhausted when `token`, the next one to grant, is beyond the end of the range."""
    if token > LAST_TOKEN:
        raise TokensExhausted(
            f"no leader can be granted: the ZooKeeper node {path} holds {token - 1}, the largest possible token. Stop "
            "every coordinator and task manager of the cluster, set the node to the highest token that their logs "
            "show, and start them again"
        )
