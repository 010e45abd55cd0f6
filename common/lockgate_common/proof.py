"""Two processes of a cluster show each other that they know its secret, and neither sends it.

```
caller                                                                 server
   call metadata: nonce, MAC("call", address, instance, method, nonce) -->  for me, by a caller with the secret?
   <-- initial metadata: MAC("answer", address, instance, method, nonce)    at once, before anything else
   request messages of a stream, only now -->
```

`address` is where the caller has dialled, `instance` a random number that the server made when it started. The caller
takes both from the leader's record in ZooKeeper, or from its leader. So a MAC is useless to any other
process: a server that passes it on has another address, and a process that comes to that address later has another
instance. The nonce makes the server's answer fresh. No round trip is needed before the call.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from lockgate_common.keys import derived_key, mac

AUTHORIZATION = "authorization"
ANSWER = "lockgate-proof"
SCHEME = "Lockgate "
_NONCE_BYTES = 16
_STATUS_WAIT_S = 1.0  # between the headers of a call that was refused and its status


class UnprovenPeer(grpc.RpcError):
    """Whoever answers at an address has not proved that it knows the cluster's secret."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the process at {address} does not prove that it knows the cluster's secret, so its answers are ignored; "
            "does it have another secret file or version, or is it not part of the cluster?"
        )


@dataclass(frozen=True, slots=True)
class Peer:
    """A server as its callers know it. address: `host:port`; instance: of its process, new at each start."""

    address: str
    instance: str


def new_instance() -> str:
    """The instance of a server that starts."""
    return secrets.token_hex(_NONCE_BYTES)


class Introduction:
    """One call to one server, from the caller's side. method: its path, `/lockgate.v1.Service/Method`."""

    def __init__(self, secret: str, peer: Peer, method: str) -> None:
        self._secret, self._peer, self._method = secret, peer, method
        self._nonce = secrets.token_hex(_NONCE_BYTES)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Call metadata; none without a secret."""
        if not self._secret:
            return ()
        return ((AUTHORIZATION, f"{SCHEME}{self._nonce}.{self._mac('call')}"),)

    def check(self, initial_metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
        """Raises UnprovenPeer unless the server's initial metadata proves that it knows the secret."""
        presented = next((value for key, value in initial_metadata or () if key == ANSWER), "")
        text = presented.decode("ascii", "replace") if isinstance(presented, bytes) else presented
        if not self._secret or not hmac.compare_digest(text.encode(), self._mac("answer").encode()):
            raise UnprovenPeer(self._peer.address)

    def wait_proven(self, call: Any) -> None:
        """Waits for the server's initial metadata and checks it.

        call: of grpcio, just made. Raises UnprovenPeer, and what the call ended with where it was refused.
        """
        try:
            self.check(call.initial_metadata())
        except UnprovenPeer:
            ended = threading.Event()
            if call.add_callback(ended.set):
                ended.wait(_STATUS_WAIT_S)
            if not call.is_active() and call.code() is not grpc.StatusCode.OK:
                raise call from None
            call.cancel()
            raise

    def _mac(self, role: str) -> str:
        return _mac(self._secret, role, self._peer, self._method, self._nonce)


def answer_to(secret: str, me: Peer, method: str, authorization: str) -> tuple[tuple[str, str], ...] | None:
    """The server's side: the initial metadata for a caller who knows the secret and means this very process.

    authorization: the call's metadata of that name. None: it proves nothing.
    """
    if not secret or not authorization.startswith(SCHEME):
        return None
    nonce, _, presented = authorization.removeprefix(SCHEME).partition(".")
    if not hmac.compare_digest(presented.encode(), _mac(secret, "call", me, method, nonce).encode()):
        return None
    return ((ANSWER, _mac(secret, "answer", me, method, nonce)),)


def _mac(secret: str, role: str, server: Peer, method: str, nonce: str) -> str:
    fields = (server.address, server.instance, method, nonce)
    return mac(derived_key(secret, f"rpc {role}"), *(field.encode() for field in fields)).hex()
