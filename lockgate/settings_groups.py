"""The groups of settings, each a table of the TOML file, with their defaults and checks."""

from __future__ import annotations

from typing import Any

from lockgate_common.addresses import zookeeper_problem
from lockgate_common.roles import roles_named
from lockgate_common.settings import number_problem
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Group(BaseModel):
    """A table whose keys are known and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*")
    @classmethod
    def _is_within_bounds(cls, value: Any, info: ValidationInfo) -> Any:
        problem = number_problem(info.field_name or "", value) if isinstance(value, int) else ""
        if problem:
            raise PydanticCustomError("bounds", "{problem}", {"problem": problem})
        return value


class ClusterGroup(Group):
    """`[cluster]`: which cluster this is, and where its coordinators listen (for clients without ZooKeeper)."""

    name: str = Field(default="default", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    coordinators: tuple[str, ...] = ()


class ZooKeeperGroup(Group):
    """`[zookeeper]`: the ensemble, `host:port,host:port`, session timeout and patience; whether it is reached with TLS.

    certificate, key, authority: PEM files for that where `[tls]` has others. Servers need all three.
    """

    hosts: str = ""
    session_timeout_ms: int = 4000
    connect_timeout_ms: int = 30_000
    tls: bool = False
    certificate: str = ""
    key: str = ""
    authority: str = ""

    @field_validator("hosts")
    @classmethod
    def _are_addresses(cls, hosts: str) -> str:
        problem = zookeeper_problem(hosts) if hosts else ""
        if problem:
            raise PydanticCustomError("addresses", "{problem}", {"problem": problem})
        return hosts


class CoordinatorGroup(Group):
    """`[coordinator]`: addresses of the job API and of the dashboard (`host:port`, `off`, or empty), heartbeats."""

    bind: str = "127.0.0.1:7070"
    advertise: str = ""
    dashboard: str = ""
    id: str = ""
    heartbeat_ms: int = 500
    heartbeat_timeout_ms: int = 3000
    max_watchers: int = 2_000
    max_task_managers: int = 2_000
    max_jobs: int = 500
    max_client_streams: int = 500
    max_client_calls: int = 200
    max_client_requests: int = 500
    max_client_bytes: int = 256 * 1024 * 1024
    metrics: str = ""
    otlp: str = ""


class TaskManagerGroup(Group):
    """`[taskmanager]`: slots, Spark, the exchange's address, and what jobs without the role code may name.

    folders: paths and URIs, empty for all that are not the cluster's or the system's; variables: names for `${NAME}`.
    """

    bind: str = "127.0.0.1:0"
    advertise: str = ""
    id: str = ""
    slots: int = 2
    spark_master: str = ""
    spark_options: dict[str, str] = Field(default_factory=dict)
    spark_niceness: int = 0
    work_dir: str = ""
    heartbeat_ms: int = 500
    leader_grace_ms: int = 600_000
    target_batch_ms: int = 300
    batch_interval_ms: int = 0
    max_batch_bytes: int = 32 * 1024 * 1024
    replay_log_bytes: int = 64 * 1024 * 1024
    warmup_runs: int = 6
    metrics: str = ""
    folders: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class StorageGroup(Group):
    """`[storage]`: the directory or URI that holds snapshots; every process must reach the same one."""

    directory: str = ""


class SecurityGroup(Group):
    """`[security]`: the file with the secret that processes and clients share; tokens in place of it.

    tokens_file: what coordinators know of tokens; token_file: the one token that a client has.
    """

    secret_file: str = ""
    tokens_file: str = ""
    token_file: str = ""


class JwtGroup(Group):
    """`[jwt]`: an issuer whose JWTs let callers in. None of it, or at least issuer, audience and keys.

    keys: a JWKS or PEM file of public keys; roles: what the values of the claim mean, when they are no names of roles.
    """

    issuer: str = ""
    audience: str = ""
    keys: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    role_claim: str = "role"
    roles: dict[str, str] = Field(default_factory=dict)


class TlsGroup(Group):
    """`[tls]`: PEM files, whether every connection needs a certificate on both sides, and what certificates are for.

    Without `mutual` clients need `authority` alone. roles: {common name or alternative name: roles}.
    """

    certificate: str = ""
    key: str = ""
    authority: str = ""
    mutual: bool = False
    roles: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @field_validator("roles", mode="before")
    @classmethod
    def _are_roles(cls, roles: Any) -> Any:
        """One role may stand without a list."""
        if not isinstance(roles, dict):
            return roles
        listed = {name: (given,) if isinstance(given, str) else given for name, given in roles.items()}
        for name, given in listed.items():
            try:
                roles_named(given)
            except (ValueError, TypeError) as error:
                raise PydanticCustomError("roles", "{problem}", {"problem": f"{name!r}: {error}"}) from error
        return listed
