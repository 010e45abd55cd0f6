"""Settings of every process and client: defaults, then a TOML file, then LOCKGATE_* variables, then options.

The file is `--config`, else `LOCKGATE_CONFIG`, else `./lockgate.toml` when it exists. A variable is named after its
group and key: `zookeeper.session_timeout_ms` is `LOCKGATE_ZOOKEEPER_SESSION_TIMEOUT_MS`. Unknown keys are refused.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockgate_proto.security import Credentials, SecurityError, TlsFiles, default_secret_file, load_secret
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from lockgate.errors import SettingsError
from lockgate_process.addresses import zookeeper_problem

if TYPE_CHECKING:
    from coordinator.runtime.settings import CoordinatorSettings
    from taskmanager.runtime.settings import TaskManagerSettings

ENVIRONMENT_PREFIX = "LOCKGATE_"
DEFAULT_FILE = "lockgate.toml"
DEFAULT_ZOOKEEPER = "127.0.0.1:2181"

# Variables that are shorter than group and key, because people type them.
_SHORTHANDS = {"LOCKGATE_SECRET_FILE": ("security", "secret_file"), "LOCKGATE_ZOOKEEPER": ("zookeeper", "hosts")}
# Options of commands that are not named after their key.
_OPTIONS = {("cluster", "name"): "--cluster-name", ("zookeeper", "hosts"): "--zookeeper"}
# Variables that are read elsewhere: the file itself, where a command finds its cluster, and switches of the tests.
_NOT_SETTINGS = ("LOCKGATE_CONFIG", "LOCKGATE_CLUSTER", "LOCKGATE_LOG_LEVEL", "LOCKGATE_FAULT")
# Read by docker/compose.yaml: whoever starts containers from a shell that has them works with the cluster from there.
_OF_COMPOSE = ("LOCKGATE_IMAGE", "LOCKGATE_INPUT", "LOCKGATE_PORT_1", "LOCKGATE_PORT_2", "LOCKGATE_PORT_3")
_TEST_PREFIX = "LOCKGATE_TEST_"


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterGroup(_Group):
    """`[cluster]`: which cluster this is, and where its coordinators listen (for clients without ZooKeeper)."""

    name: str = Field(default="default", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    coordinators: tuple[str, ...] = ()


class ZooKeeperGroup(_Group):
    """`[zookeeper]`: the ensemble, `host:port,host:port`, and how long a silent session lives."""

    hosts: str = ""
    session_timeout_ms: int = Field(default=4000, ge=500, le=60_000)

    @field_validator("hosts")
    @classmethod
    def _are_addresses(cls, hosts: str) -> str:
        problem = zookeeper_problem(hosts) if hosts else ""
        if problem:
            raise PydanticCustomError("addresses", "{problem}", {"problem": problem})
        return hosts


class CoordinatorGroup(_Group):
    """`[coordinator]`: the job API's address and the heartbeats to task managers."""

    bind: str = "127.0.0.1:7070"
    advertise: str = ""
    id: str = ""
    heartbeat_ms: int = Field(default=500, ge=50)
    heartbeat_timeout_ms: int = Field(default=3000, ge=200)
    max_watchers: int = Field(default=2_000, ge=1)
    max_task_managers: int = Field(default=2_000, ge=1)


class TaskManagerGroup(_Group):
    """`[taskmanager]`: slots, Spark, and the exchange's address."""

    bind: str = "127.0.0.1:0"
    advertise: str = ""
    id: str = ""
    slots: int = Field(default=2, ge=1, le=1024)
    spark_master: str = ""
    spark_options: dict[str, str] = Field(default_factory=dict)
    work_dir: str = ""
    heartbeat_ms: int = Field(default=500, ge=50)
    target_batch_ms: int = Field(default=300, ge=10)
    max_batch_bytes: int = Field(default=32 * 1024 * 1024, ge=1024)


class StorageGroup(_Group):
    """`[storage]`: the directory or URI that holds snapshots; every process must reach the same one."""

    directory: str = ""


class SecurityGroup(_Group):
    """`[security]`: the file with the secret that processes and clients share."""

    secret_file: str = ""


class TlsGroup(_Group):
    """`[tls]`: PEM files. Clients need `authority` alone."""

    certificate: str = ""
    key: str = ""
    authority: str = ""


class Settings(_Group):
    """All settings, checked. Make one with `load_settings`."""

    cluster: ClusterGroup = Field(default=ClusterGroup())
    zookeeper: ZooKeeperGroup = Field(default=ZooKeeperGroup())
    coordinator: CoordinatorGroup = Field(default=CoordinatorGroup())
    taskmanager: TaskManagerGroup = Field(default=TaskManagerGroup())
    storage: StorageGroup = Field(default=StorageGroup())
    security: SecurityGroup = Field(default=SecurityGroup())
    tls: TlsGroup = Field(default=TlsGroup())

    def credentials(self, *, create: bool = False) -> Credentials:
        """The secret and TLS files. `create` makes a missing secret file (servers do, clients do not)."""
        path = Path(self.security.secret_file).expanduser() if self.security.secret_file else default_secret_file()
        try:
            return Credentials(secret=load_secret(path, create=create), tls=self._tls_files())
        except SecurityError as error:
            raise SettingsError(str(error)) from error

    def coordinator_settings(self) -> CoordinatorSettings:
        """What `coordinator.runtime.process.run` takes. Raises SettingsError when no storage is named."""
        from coordinator.runtime.settings import CoordinatorSettings

        group = self.coordinator
        if not self.storage.directory:
            raise SettingsError(
                "no storage for snapshots: give --storage DIRECTORY (or a URI such as s3://bucket/folder), or set "
                "storage.directory; every coordinator and task manager must reach the same one"
            )
        return CoordinatorSettings(
            cluster=self.cluster.name,
            zookeeper=self.zookeeper.hosts or DEFAULT_ZOOKEEPER,
            bind=group.bind,
            advertise=group.advertise,
            storage=absolute(self.storage.directory),
            credentials=self.credentials(create=True),
            session_timeout_ms=self.zookeeper.session_timeout_ms,
            heartbeat_ms=group.heartbeat_ms,
            heartbeat_timeout_ms=group.heartbeat_timeout_ms,
            coordinator_id=group.id,
            max_watchers=group.max_watchers,
            max_task_managers=group.max_task_managers,
        )

    def task_manager_settings(self) -> TaskManagerSettings:
        """What `taskmanager.runtime.process.run` takes."""
        from taskmanager.runtime.settings import TaskManagerSettings

        group = self.taskmanager
        return TaskManagerSettings(
            cluster=self.cluster.name,
            zookeeper=self.zookeeper.hosts or DEFAULT_ZOOKEEPER,
            bind=group.bind,
            advertise=group.advertise,
            slots=group.slots,
            spark_master=group.spark_master,
            spark_options=group.spark_options,
            work_dir=absolute(group.work_dir) if group.work_dir else "",
            credentials=self.credentials(create=True),
            session_timeout_ms=self.zookeeper.session_timeout_ms,
            heartbeat_ms=group.heartbeat_ms,
            target_batch_ms=group.target_batch_ms,
            max_batch_bytes=group.max_batch_bytes,
            task_manager_id=group.id,
        )

    def _tls_files(self) -> TlsFiles | None:
        files = TlsFiles(**{name: absolute(path) if path else "" for name, path in self.tls.model_dump().items()})
        return files if files != TlsFiles() else None


def load_settings(
    config: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Reads and checks all settings.

    config: the TOML file, or None for LOCKGATE_CONFIG or ./lockgate.toml; overrides: {group: {key: value}}, stronger
    than everything else, None values are left out; environment: os.environ unless given. Raises SettingsError.
    """
    env = os.environ if environment is None else environment
    path = _config_path(config, env)
    file_values = _read_file(path) if path else {}
    env_values = dict(_read_environment(env))
    given = {
        group: {key: value for key, value in keys.items() if value is not None}
        for group, keys in (overrides or {}).items()
    }
    merged: dict[str, dict[str, Any]] = {}
    for layer in (file_values, _nested(env_values), given):
        for group, keys in layer.items():
            merged.setdefault(group, {}).update(keys)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError(_explain(error, given, env_values, path)) from error


def absolute(path: str) -> str:
    """A local path made absolute (`~` expanded); a URI stays as it is."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _config_path(config: str | os.PathLike[str] | None, env: Mapping[str, str]) -> Path | None:
    named = str(config) if config else env.get("LOCKGATE_CONFIG", "")
    if named:
        return Path(named).expanduser()
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not valid TOML: {error}") from error
    known = _known()
    for group, keys in values.items():
        if group not in known:
            hint = _in_other_group(group) or _did_you_mean(group, known)
            raise SettingsError(f"{path} has an unknown group [{group}]{hint}")
        if not isinstance(keys, dict):
            raise SettingsError(f"{path}: {group} is a group; write a [{group}] table with its keys")
        for key in keys:
            if key not in known[group]:
                hint = _in_other_group(key) or _did_you_mean(f"{group}.{key}", _all_keys())
                raise SettingsError(f"{path} has an unknown key {group}.{key}{hint}")
    return values


def _read_environment(env: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], Any]]:
    known = _known()
    # A shorthand is the weaker name when both are set: it comes first and is overwritten.
    for name in sorted(
        (one for one in env if one.startswith(ENVIRONMENT_PREFIX)), key=lambda one: one not in _SHORTHANDS
    ):
        if name in _NOT_SETTINGS or name in _OF_COMPOSE or name.startswith(_TEST_PREFIX):
            continue
        place = _SHORTHANDS.get(name) or _place(name, known)
        if place is None:
            names = [variable(group, key) for group, keys in known.items() for key in keys]
            names += [*_SHORTHANDS, *_NOT_SETTINGS]
            raise SettingsError(f"unknown environment variable {name}{_did_you_mean(name, names)}")
        yield place, _parse(name, place, env[name])


def _place(name: str, known: Mapping[str, Mapping[str, FieldInfo]]) -> tuple[str, str] | None:
    group, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
    return (group, key) if key in known.get(group, {}) else None


def _parse(name: str, place: tuple[str, str], text: str) -> Any:
    if place == ("cluster", "coordinators"):
        return tuple(one.strip() for one in text.split(",") if one.strip())
    if place == ("taskmanager", "spark_options"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise SettingsError(f'{name} must be a JSON object, such as {{"spark.driver.memory": "2g"}}') from error
    return text


def _nested(values: Mapping[tuple[str, str], Any]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for (group, key), value in values.items():
        result.setdefault(group, {})[key] = value
    return result


def variable(group: str, key: str) -> str:
    """The environment variable of a setting."""
    return f"{ENVIRONMENT_PREFIX}{group}_{key}".upper()


def _known() -> dict[str, dict[str, FieldInfo]]:
    groups: dict[str, dict[str, FieldInfo]] = {}
    for name, field in Settings.model_fields.items():
        assert isinstance(field.annotation, type)
        assert issubclass(field.annotation, BaseModel)
        groups[name] = dict(field.annotation.model_fields)
    return groups


def _all_keys() -> list[str]:
    return [f"{group}.{key}" for group, keys in _known().items() for key in keys]


def _in_other_group(key: str) -> str:
    """The right key in the wrong place is the commonest slip."""
    found = [f"{group}.{key}" for group, keys in _known().items() if key in keys]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _did_you_mean(word: str, candidates: Any) -> str:
    names = list(dict.fromkeys(candidates))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(names)}"


def _explain(
    error: ValidationError,
    given: Mapping[str, Mapping[str, Any]],
    env_values: Mapping[tuple[str, str], Any],
    path: Path | None,
) -> str:
    sentences = []
    for one in error.errors():
        group, key = (str(part) for part in (*one["loc"], "", "")[:2])
        if key in given.get(group, {}):
            origin = _OPTIONS.get((group, key), f"--{key.replace('_', '-')}")
        elif (group, key) in env_values:
            origin = next((name for name, place in _SHORTHANDS.items() if place == (group, key)), variable(group, key))
            origin = variable(group, key) if variable(group, key) in os.environ else origin
        else:
            origin = f"{path}: {group}.{key}"
        sentences.append(f"{origin} cannot be {one['input']!r}: {one['msg'][:1].lower()}{one['msg'][1:]}")
    return "; ".join(sentences)
