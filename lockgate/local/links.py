"""Links between containers, cut without a sound: what is sent over them vanishes, and neither side is told.

Each side is told a hardware address for the other that no card has, so that packets leave it and arrive nowhere: a
connection hears nothing any more, and a new one waits for an answer until its own patience ends. (A route to nowhere
would let it fail at once, as no broken switch or firewall does.) A cut at one side alone would leave the other one's
packets arriving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from lockgate.errors import UserError
from lockgate.local.engine import docker

_NOBODY = "02:00:00:00:00:01"  # a locally administered address, which the engine gives to no container
_CUT = f"""
lines=$(for address; do
    set -- $(ip -o route get $address)
    [ "$2" = dev ] || {{ echo "$address is not on a network of this container" >&2; exit 1; }}
    echo "neigh replace $address lladdr {_NOBODY} nud permanent dev $3"
done) && echo "$lines" | ip -batch -
"""
_HEAL = f"""
ip neigh show nud permanent | while read -r address _ device _ hardware _; do
    for one; do [ "$one $hardware" = "$address {_NOBODY}" ] && echo "neigh del $address dev $device"; done
done | ip -force -batch - 2>/dev/null
ip neigh show nud permanent | grep {_NOBODY}
true
"""
"""For `sh -c`, with addresses as arguments. The second prints what is cut off afterwards, also by other cuts."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A container on the cluster's network. container: its id, or how that begins; address: where others reach it."""

    container: str
    address: str


def cut(victim: Endpoint, others: Sequence[Endpoint]) -> None:
    """Cuts the victim off from the others. Raises UserError.

    At the victim first, with one command, so that it can send to none of them from the same millisecond on; then at
    all of the others at once. Returns when every link is cut both ways. Cutting twice is the same as once.
    """
    _lead_nowhere(victim, [one.address for one in others])
    _at_once([partial(_lead_nowhere, one, [victim.address]) for one in others])


def heal(victim: Endpoint, others: Sequence[Endpoint]) -> None:
    """Takes a cut back on both sides. Raises UserError when one stays.

    A container that was started again since has lost its side by itself; one that is down loses it with its end.
    """
    at_the_others = [partial(_lead_again, one, [victim.address]) for one in others]
    _at_once([partial(_lead_again, victim, [one.address for one in others]), *at_the_others])


def _at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """All of them are tried; then the first error is raised."""
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def _lead_nowhere(one: Endpoint, addresses: Sequence[str]) -> None:
    _shell(one, _CUT, addresses)


def _lead_again(one: Endpoint, addresses: Sequence[str]) -> None:
    try:
        left = _shell(one, _HEAL, addresses)
    except UserError:
        if not _is_running(one):
            return
        left = _shell(one, _HEAL, addresses)  # it was being started again just then
    stays = sorted(set(addresses) & set(left.split()))
    if stays:
        raise UserError(f"container {one.container[:12]} is still cut off from {', '.join(stays)}")


def _shell(one: Endpoint, script: str, addresses: Sequence[str]) -> str:
    return docker("exec", "-u", "root", one.container, "sh", "-c", script, "sh", *addresses)


def _is_running(one: Endpoint) -> bool:
    try:
        return docker("inspect", "--format", "{{.State.Running}}", one.container).strip() == "true"
    except UserError:
        return False  # removed
