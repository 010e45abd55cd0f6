"""Who is let in: the shared secret, TLS material, and gRPC channels and server credentials made from both.

Every process and client of one user on one machine shares the secret file (mode 0600), made on first use. Calls
between the processes of a cluster prove that both sides know it, see `proof`; clients may also carry it as
`authorization: Bearer <secret>`. A port opened beyond loopback needs TLS as well.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from lockgate_proto.rpc import CHANNEL_OPTIONS, TLS_CHANNEL_OPTIONS

from lockgate_common import private_folder
from lockgate_common.addresses import is_loopback
from lockgate_common.proof import AUTHORIZATION, Introduction, Peer, answer_to
from lockgate_common.tls import SecurityError as SecurityError
from lockgate_common.tls import TlsFiles as TlsFiles
from lockgate_common.tls import handshake_problem
from lockgate_common.token import Jwt, JwtIntroduction, Token, TokenIntroduction, parse_jwt, parse_token
from lockgate_common.trusted_files import UntrustedFile, read_trusted

_GRPCIO = "grpc._cython.cygrpc"
Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True)
class Credentials:
    """What a process shows to others and asks of them."""

    secret: str = field(default="", repr=False)
    tls: TlsFiles | None = None
    token: Token | Jwt | None = field(default=None, repr=False)
    """Of a client, which then needs no secret."""
    zookeeper: TlsFiles | None = None
    """How ZooKeeper is reached: with TLS and these files, or in plain text."""

    def __post_init__(self) -> None:
        """Raises SecurityError for a JWT without TLS."""
        if isinstance(self.token, Jwt) and self.tls is None:
            raise SecurityError(
                "a JWT is sent unchanged, so it needs coordinators with TLS: set tls.authority or "
                "LOCKGATE_TLS_AUTHORITY to the PEM file of their authority"
            )

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """gRPC call metadata that carries the secret. Never for a server whose address comes from someone else."""
        return ((AUTHORIZATION, f"Bearer {self.secret}"),) if self.secret else ()

    def introduction(self, peer: Peer, method: str) -> Introduction:
        """A call between two processes of the cluster, in which neither shows the secret."""
        if isinstance(self.token, Jwt):
            return JwtIntroduction(self.token, peer, method)
        if self.token is not None:
            return TokenIntroduction(self.token, peer, method)
        return Introduction(self.secret, peer, method)

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to show."""
        return not self.secret and self.token is None

    def admits(self, metadata: Metadata) -> bool:
        """True when the caller's metadata carries this process's secret. Constant time."""
        return bool(self.secret) and hmac.compare_digest(_authorization(metadata), f"Bearer {self.secret}".encode())

    def answer(self, me: Peer, method: str, metadata: Metadata) -> tuple[tuple[str, str], ...] | None:
        """The initial metadata for a caller that carries the secret or proves that it knows it; None for any other."""
        if self.admits(metadata):
            return ()
        return answer_to(self.secret, me, method, _authorization(metadata).decode())

    def channel(self, address: str, options: tuple[tuple[str, int], ...] = ()) -> grpc.Channel:
        """An insecure channel on a machine of one's own, a TLS channel where TLS files are set.

        options: beside those of every channel.
        """
        if self.tls is None:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS + options)
        return grpc.secure_channel(address, self.tls.channel_credentials(), options=TLS_CHANNEL_OPTIONS + options)

    def edition(self) -> object:
        """Another object once new TLS files are there: channels opened before would show the old certificate."""
        return self.tls.read() if self.tls else None

    def handshake_problem(self, details: str) -> str:
        """What is wrong with certificates when a call has failed with these details, see `tls`; "" when nothing is."""
        return handshake_problem(details, self.tls)

    def check_reach(self, address: str) -> None:
        """Raises SecurityError for a `host:port` beyond loopback without TLS and a secret."""
        if not is_loopback(address) and (self.tls is None or not self.secret):
            raise SecurityError(
                f"{address} is reachable from other machines; set tls.certificate, tls.key, tls.authority and a "
                "secret file, or bind to 127.0.0.1"
            )

    def bind(self, server: grpc.Server, address: str) -> int:
        """Opens `host:port` on the server and returns the port. Port 0 picks a free one.

        Raises SecurityError when the address reaches beyond loopback without TLS and a secret, OSError with a
        sentence for the user when the port is taken.
        """
        self.check_reach(address)
        shown = self.tls.server_credentials() if self.tls else None
        logging.getLogger(_GRPCIO).addFilter(_is_no_stray_header)
        try:
            port = server.add_secure_port(address, shown) if shown else server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(
                f"cannot listen on {address}: the port is taken or the address is not this machine's; "
                "choose another with --bind"
            ) from error
        if port == 0:
            raise OSError(f"cannot listen on {address}: the port is taken; choose another with --bind")
        return port


def _is_no_stray_header(record: logging.LogRecord) -> bool:
    """grpcio logs every header that is not UTF-8, including credentials, with a stack trace, from any caller."""
    return not str(record.msg).startswith("Invalid encoding on ")


def _authorization(metadata: Metadata) -> bytes:
    presented = next((value for key, value in metadata if key == AUTHORIZATION), "")
    return (presented if isinstance(presented, str) else presented.decode("utf-8", "replace")).encode()


def default_secret_file() -> Path:
    """`$XDG_CONFIG_HOME/lockgate/secret`, or `~/.config/lockgate/secret`."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "lockgate" / "secret"


def load_secret(path: Path, *, create: bool) -> str:
    """The secret in `path`. Raises SecurityError.

    create: by a process that admits callers with it; makes the file (mode 0600) when it is missing.
    """
    try:
        if create and not path.exists():
            _create_secret(path)
        secret = read_trusted(path, is_secret=True, lets_in=create).strip()
    except FileNotFoundError:
        return ""
    except UntrustedFile as error:
        raise SecurityError(str(error)) from error
    except UnicodeDecodeError as error:
        raise SecurityError(f"{path} is not a secret: it is not text") from error
    except OSError as error:
        raise SecurityError(f"cannot read the secret file {path}: {error.strerror}") from error
    if len(secret) < 16:
        remedy = "remove the file, and a new one is created" if create else "it is not that of a cluster: copy it again"
        raise SecurityError(f"the secret in {path} is shorter than 16 characters; {remedy}")
    return secret


def default_tokens_file(secret_file: Path) -> Path:
    """Where a cluster's tokens are unless a setting says so: `tokens.json` beside its secret."""
    return secret_file.with_name("tokens.json")


def load_token(path: Path) -> Token | Jwt:
    """The token or JWT in `path`, for a client. Raises SecurityError."""
    try:
        text = read_trusted(path, is_secret=True)
    except (UntrustedFile, UnicodeDecodeError) as error:
        raise SecurityError(str(error)) from error
    except OSError as error:
        raise SecurityError(f"cannot read the token in {path}: {error.strerror}") from error
    token = parse_token(text) or parse_jwt(text)
    if token is None:
        raise SecurityError(
            f"{path} is not a token: it should contain the output of `lockgate tokens create`, or a JWT"
        )
    return token


def _create_secret(path: Path) -> None:
    private_folder.make_missing(path.parent)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    try:
        os.link(fresh, path)  # the first of several processes that start together wins
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
