"""The number in `/epoch`: the FencingToken of the newest grant, and where tokens end."""

from __future__ import annotations

from ha.errors import CorruptRecord, TokensExhausted

LAST_TOKEN = 2**63 - 1
"""What a message can carry. Counting there takes longer than any cluster lives; a hand at ZooKeeper can get there."""


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
    """Raises TokensExhausted when `token`, which is to be granted next, is beyond the end."""
    if token > LAST_TOKEN:
        raise TokensExhausted(
            f"no leader can be granted: the ZooKeeper node {path} holds {token - 1}, the last token there is. Stop "
            "every coordinator and task manager of the cluster, set the node to the highest token that their logs "
            "show, and start them again"
        )
