"""The settings of a coordinator process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockgate_common.masking import masked
from lockgate_common.roles import roles_named
from lockgate_common.security import Credentials
from lockgate_common.settings import SettingsError, check_numbers, check_page, check_process

SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms of JWTs that can be checked without being able to make them."""


DASHBOARD = "127.0.0.1:7080"
_RECEIVER = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Whose JWTs let callers in. keys: path of a JWKS or PEM file of public keys; role_claim: what names the role.

    roles: what the claim's values mean; when it is empty, they are names of roles.
    """

    issuer: str
    audience: str
    keys: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    role_claim: str = "role"
    roles: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises SettingsError naming the first setting that cannot work."""
        for name in ("issuer", "audience", "keys", "role_claim"):
            if not getattr(self, name):
                raise SettingsError(f"jwt.{name}: it is empty; JWTs need issuer, audience and keys")
        for algorithm in self.algorithms or ("nothing",):
            if algorithm not in SIGNATURES:
                raise SettingsError(f"jwt.algorithms: {algorithm!r} is not allowed; use {', '.join(SIGNATURES)}")
        for value, role in self.roles.items():
            try:
                roles_named([role])
            except ValueError as error:
                raise SettingsError(f"jwt.roles: {value!r} stands for a role that does not exist: {error}") from error


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The settings of one coordinator process.

    zookeeper: `host:port[,host:port...]`; storage: a local path or a pyarrow.fs URI that every coordinator and task
    manager of the cluster reaches; bind: `host:port` of the gRPC server, port 0 picks a free one; advertise:
    `host:port` that others use, empty for the bound address, which others must then be able to reach; coordinator_id:
    empty for a generated one; tokens_file: see `TokenBook`, empty for no tokens; metrics: `host:port` of the page of
    metrics, empty or `off` for none; certificate_roles: by common name or
    alternative name of a client's certificate; jwt: None for no JWTs; max_jobs: jobs that have not ended; max_client_*:
    of one client, open streams, requests a second, and bytes of requests in work; private: paths and URIs that jobs
    whose authors may not run code neither read nor write; dashboard: `host:port` of the web dashboard, "off", or empty
    for DASHBOARD or, if its port is taken, a free one; otlp: where traces are sent, `http://host:port` or
    `https://host:port`, empty for none. Times are in milliseconds.
    """

    zookeeper: str
    storage: str
    cluster: str = "default"
    bind: str = "127.0.0.1:7070"
    advertise: str = ""
    credentials: Credentials = field(default_factory=Credentials)
    tokens_file: str = ""
    metrics: str = ""
    certificate_roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jwt: JwtSettings | None = None
    session_timeout_ms: int = 4000
    heartbeat_ms: int = 500
    heartbeat_timeout_ms: int = 3000
    coordinator_id: str = ""
    max_watchers: int = 2_000
    max_task_managers: int = 2_000
    max_jobs: int = 500
    max_client_streams: int = 500
    max_client_calls: int = 200
    max_client_requests: int = 500
    max_client_bytes: int = 256 * 1024 * 1024
    connect_timeout_ms: int = 30_000
    private: tuple[str, ...] = ()
    dashboard: str = ""
    otlp: str = ""

    def check(self) -> None:
        """Raises SettingsError naming the first setting that cannot work."""
        names = {"cluster": self.cluster, "coordinator_id": self.coordinator_id or "made"}
        check_process(self.zookeeper, self.bind, self.advertise, names)
        check_page("metrics", self.metrics)
        check_page("dashboard", self.dashboard)
        if self.otlp and not _RECEIVER.fullmatch(self.otlp):
            raise SettingsError(
                f"otlp: {masked(self.otlp)!r} is no receiver; give http://host:port or https://host:port"
            )
        if not self.storage:
            raise SettingsError("storage: no folder or URI is named; checkpoints need one that all processes reach")
        if masked(self.storage) != self.storage:
            raise SettingsError(
                f"storage: {masked(self.storage)} has credentials in it, which would be stored in ZooKeeper; "
                "give them through the environment of every process (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            )
        check_numbers(self)
        if self.jwt is not None:
            self.jwt.check()
        if self.heartbeat_timeout_ms < 2 * self.heartbeat_ms:
            raise SettingsError(
                f"heartbeat_timeout_ms: {self.heartbeat_timeout_ms} is less than two heartbeats of "
                f"{self.heartbeat_ms} ms; a single late beat would count as a loss"
            )
