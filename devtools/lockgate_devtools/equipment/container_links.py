"""Silently cut links between containers: packets are lost, and neither side is notified.

Each side gets an unused hardware address for the other, so that packets leave it and arrive nowhere: a connection
receives nothing any more, and a new one waits for an answer until it times out. (A blackhole route would make it fail
at once, unlike a broken switch or firewall.) With a cut on one side only, the other side's packets would still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from lockgate.errors import UserError
from lockgate_devtools.equipment.engine import docker

_UNUSED_MAC = "02:00:00:00:00:01"  # a locally administered address, which the engine assigns to no container
_CUT = f"""
lines=$(for address; do
    set -- $(ip -o route get $address)
    [ "$2" = dev ] || {{ echo "$address is not on a network of this container" >&2; exit 1; }}
    echo "neigh replace $address lladdr {_UNUSED_MAC} nud permanent dev $3"
done) && echo "$lines" | ip -batch -
"""
_HEAL = f"""
ip neigh show nud permanent | while read -r address _ device _ hardware _; do
    for blocked; do [ "$blocked $hardware" = "$address {_UNUSED_MAC}" ] && echo "neigh del $address dev $device"; done
done | ip -force -batch - 2>/dev/null
ip neigh show nud permanent | grep {_UNUSED_MAC}
true
"""
"""For `sh -c`, with addresses as arguments. The second prints addresses that are still cut off, also by other cuts."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A container on the cluster's network. container: its id, or a prefix of it; address: where others reach it."""

    container: str
    address: str


def cut(victim: Endpoint, others: Sequence[Endpoint]) -> None:
    """Cuts the victim off from the others. Raises UserError.

    First at the victim, with one command, so that it loses all links within a millisecond; then at all others in
    parallel. Returns when every link is cut in both directions. Idempotent.
    """
    _block(victim, [other.address for other in others])
    _at_once([partial(_block, other, [victim.address]) for other in others])


def heal(victim: Endpoint, others: Sequence[Endpoint]) -> None:
    """Reverts a cut on both sides. Raises UserError when one remains.

    A container that was restarted since has lost its side of the cut; one that is down loses it when it ends.
    """
    at_the_others = [partial(_unblock, other, [victim.address]) for other in others]
    _at_once([partial(_unblock, victim, [other.address for other in others]), *at_the_others])


def _at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Runs all tasks; then raises the first error."""
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def _block(endpoint: Endpoint, addresses: Sequence[str]) -> None:
    _shell(endpoint, _CUT, addresses)


def _unblock(endpoint: Endpoint, addresses: Sequence[str]) -> None:
    try:
        left = _shell(endpoint, _HEAL, addresses)
    except UserError:
        if not _is_running(endpoint):
            return
        left = _shell(endpoint, _HEAL, addresses)  # it was being restarted at that moment
    stays = sorted(set(addresses) & set(left.split()))
    if stays:
        raise UserError(f"container {endpoint.container[:12]} is still cut off from {', '.join(stays)}")


def _shell(endpoint: Endpoint, script: str, addresses: Sequence[str]) -> str:
    """In a separate container: no user in the victim may change its network."""
    image = docker("inspect", "--format", "{{.Image}}", endpoint.container).strip()
    beside = ("--network", f"container:{endpoint.container}", "--cap-drop", "ALL", "--cap-add", "NET_ADMIN")
    return docker("run", "--rm", "--user", "root", *beside, "--entrypoint", "sh", image, "-c", script, "sh", *addresses)


def _is_running(endpoint: Endpoint) -> bool:
    try:
        return docker("inspect", "--format", "{{.State.Running}}", endpoint.container).strip() == "true"
    except UserError:
        return False  # it was removed
