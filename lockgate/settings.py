"""Settings of every process and client: defaults, then a TOML file, then LOCKGATE_* variables, then options.

The file is `--config`, else `LOCKGATE_CONFIG`, else `./lockgate.toml` when it exists. A variable is named after its
group and key: `zookeeper.session_timeout_ms` is `LOCKGATE_ZOOKEEPER_SESSION_TIMEOUT_MS`. Unknown keys are refused.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockgate_common.json_input import parse_json
from lockgate_common.places import cluster_folder
from lockgate_common.security import (
    Credentials,
    SecurityError,
    TlsFiles,
    default_secret_file,
    default_tokens_file,
    load_secret,
    load_token,
)
from lockgate_common.trusted_files import UntrustedFile, read_trusted
from lockgate_common.uris import absolute
from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo

from lockgate.errors import SettingsError
from lockgate.settings_groups import (
    ClusterGroup,
    CoordinatorGroup,
    Group,
    JwtGroup,
    SecurityGroup,
    StorageGroup,
    TaskManagerGroup,
    TlsGroup,
    ZooKeeperGroup,
)

if TYPE_CHECKING:
    from lockgate_coordinator.runtime.settings import CoordinatorSettings, JwtSettings
    from lockgate_taskmanager.runtime.settings import TaskManagerSettings

ENVIRONMENT_PREFIX = "LOCKGATE_"
DEFAULT_FILE = "lockgate.toml"
DEFAULT_ZOOKEEPER = "127.0.0.1:2181"

# Variables that are shorter than group and key, because people type them.
_SHORTHANDS = {
    "LOCKGATE_SECRET_FILE": ("security", "secret_file"),
    "LOCKGATE_TOKEN_FILE": ("security", "token_file"),
    "LOCKGATE_ZOOKEEPER": ("zookeeper", "hosts"),
}
# Variables that hold JSON: an example of each.
_OBJECTS = {
    ("taskmanager", "spark_options"): '{"spark.driver.memory": "2g"}',
    ("tls", "roles"): '{"alice": ["submit", "operate"]}',
    ("jwt", "roles"): '{"operators": "operate"}',
}
# Variables that hold a list, with commas.
_LISTS = (("cluster", "coordinators"), ("jwt", "algorithms"), ("taskmanager", "folders"), ("taskmanager", "variables"))
# Options of commands that are not named after their key.
_OPTIONS = {("cluster", "name"): "--cluster-name", ("zookeeper", "hosts"): "--zookeeper"}
# Variables that are read elsewhere: the file itself, where a command finds its cluster, and switches of the tests.
_NOT_SETTINGS = ("LOCKGATE_CONFIG", "LOCKGATE_CLUSTER", "LOCKGATE_LOG_LEVEL", "LOCKGATE_LOG_FORMAT", "LOCKGATE_FAULT")
# Read by docker/compose.yaml: a shell that has these variables for starting containers can also use the cluster.
_OF_COMPOSE = ("LOCKGATE_IMAGE", "LOCKGATE_INPUT", "LOCKGATE_PORT_1", "LOCKGATE_PORT_2", "LOCKGATE_PORT_3")
_TEST_PREFIX = "LOCKGATE_TEST_"


class Settings(Group):
    """All settings, checked. Make one with `load_settings`."""

    cluster: ClusterGroup = Field(default=ClusterGroup())
    zookeeper: ZooKeeperGroup = Field(default=ZooKeeperGroup())
    coordinator: CoordinatorGroup = Field(default=CoordinatorGroup())
    taskmanager: TaskManagerGroup = Field(default=TaskManagerGroup())
    storage: StorageGroup = Field(default=StorageGroup())
    security: SecurityGroup = Field(default=SecurityGroup())
    jwt: JwtGroup = Field(default=JwtGroup())
    tls: TlsGroup = Field(default=TlsGroup())
    _file: str = PrivateAttr(default="")  # from which they were read; "" for none

    def credentials(self, *, create: bool = False) -> Credentials:
        """The secret and TLS files. `create` makes a missing secret file (servers do, clients do not)."""
        try:
            tls = self.tls_files()
            if self.security.token_file and not create:
                token = load_token(Path(self.security.token_file).expanduser())
                return Credentials(tls=tls, token=token)
            secret = load_secret(self.secret_path, create=create)
            return Credentials(secret=secret, tls=tls, zookeeper=self.zookeeper_tls())
        except SecurityError as error:
            raise SettingsError(str(error)) from error

    @property
    def secret_path(self) -> Path:
        """The file with the secret."""
        named = self.security.secret_file
        return Path(named).expanduser() if named else default_secret_file()

    @property
    def tokens_path(self) -> Path:
        """The file that coordinators read tokens from."""
        named = self.security.tokens_file
        return Path(named).expanduser() if named else default_tokens_file(self.secret_path)

    def coordinator_settings(self) -> CoordinatorSettings:
        """The argument of `lockgate_coordinator.runtime.process.run`. Raises SettingsError when no storage is set."""
        from lockgate_coordinator.runtime.settings import CoordinatorSettings

        group = self.coordinator
        if not self.storage.directory:
            raise SettingsError(
                "no storage for snapshots: give --storage DIRECTORY (or a URI such as s3://bucket/folder), or set "
                "storage.directory; every coordinator and task manager must reach the same one"
            )
        return CoordinatorSettings(
            cluster=self.cluster.name,
            zookeeper=self.zookeeper.hosts or DEFAULT_ZOOKEEPER,
            storage=absolute(self.storage.directory),
            credentials=self.credentials(create=True),
            tokens_file=str(self.tokens_path),
            certificate_roles=self.certificate_roles(),
            jwt=self._jwt_settings(),
            session_timeout_ms=self.zookeeper.session_timeout_ms,
            connect_timeout_ms=self.zookeeper.connect_timeout_ms,
            coordinator_id=group.id,
            private=self.private_places(),
            **group.model_dump(exclude={"id"}),  # the others have the same names
        )

    def task_manager_settings(self) -> TaskManagerSettings:
        """The argument of `lockgate_taskmanager.runtime.process.run`."""
        from lockgate_taskmanager.runtime.settings import TaskManagerSettings

        group = self.taskmanager
        return TaskManagerSettings(
            cluster=self.cluster.name,
            zookeeper=self.zookeeper.hosts or DEFAULT_ZOOKEEPER,
            work_dir=absolute(group.work_dir) if group.work_dir else "",
            credentials=self.credentials(create=True),
            tokens_file=str(self.tokens_path),
            session_timeout_ms=self.zookeeper.session_timeout_ms,
            connect_timeout_ms=self.zookeeper.connect_timeout_ms,
            task_manager_id=group.id,
            private=self.private_places(),
            **{**group.model_dump(exclude={"id", "work_dir"}), **self.limits_of_jobs()},  # of the same names
        )

    def limits_of_jobs(self) -> dict[str, tuple[str, ...]]:
        """What jobs without the role code may name, as fields of TaskManagerSettings."""
        group = self.taskmanager
        return {"folders": tuple(map(absolute, group.folders)), "variables": group.variables}

    def private_places(self) -> tuple[str, ...]:
        """The cluster's own files and folders, as far as they are named here. They need not exist."""
        files = [self.security.token_file, self.tls.key, self.zookeeper.key, self._file]
        if self.storage.directory:
            files.append(cluster_folder(self.storage.directory, self.cluster.name))
        return (str(self.secret_path), str(self.tokens_path), *(absolute(file) for file in files if file))

    def zookeeper_tls(self) -> TlsFiles | None:
        """The files for TLS with ZooKeeper; None for plain text. Raises SettingsError when they are incomplete."""
        own, group = _files(self.zookeeper), self.zookeeper
        if not group.tls:
            if own != TlsFiles():
                raise SettingsError("zookeeper.tls is not set, but files for it are; set zookeeper.tls = true")
            return None
        general = _files(self.tls)
        pair = own if own.certificate or own.key else general
        files = TlsFiles(pair.certificate, pair.key, own.authority or general.authority)
        if not files.authority:
            raise SettingsError(
                "zookeeper.tls needs zookeeper.authority (or tls.authority), the authority of ZooKeeper's certificate"
            )
        if bool(files.certificate) != bool(files.key):
            raise SettingsError("zookeeper.tls needs a certificate and its key, or neither; see zookeeper.certificate")
        return files

    def server_tls_files(self) -> TlsFiles | None:
        """The TLS files of a cluster on this machine; the authority of another cluster, which a client has, is none.

        Raises SettingsError for some that cannot work.
        """
        if not (self.tls.mutual or self.tls.certificate or self.tls.key):
            return None
        try:
            return self.tls_files()
        except SecurityError as error:
            raise SettingsError(str(error)) from error

    def tls_files(self) -> TlsFiles | None:
        """The TLS files, None where none is set. Raises SecurityError for some that cannot work."""
        files = replace(_files(self.tls), mutual=self.tls.mutual)
        if files == TlsFiles():
            return None
        files.check()
        return files

    def certificate_roles(self) -> dict[str, tuple[str, ...]]:
        """What callers with a certificate of one of these names may do. Raises SettingsError."""
        if self.tls.roles and not self.tls.mutual:
            raise SettingsError("[tls.roles] has no effect without client certificates: set tls.mutual = true")
        return self.tls.roles

    def _jwt_settings(self) -> JwtSettings | None:
        from lockgate_coordinator.runtime.settings import JwtSettings

        keys = absolute(self.jwt.keys) if self.jwt.keys else ""
        return JwtSettings(**{**self.jwt.model_dump(), "keys": keys}) if self.jwt != JwtGroup() else None


def _files(group: ZooKeeperGroup | TlsGroup) -> TlsFiles:
    certificate, key, authority = (
        absolute(path) if path else "" for path in (group.certificate, group.key, group.authority)
    )
    return TlsFiles(certificate, key, authority)


def load_settings(
    config: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Reads and checks all settings.

    config: the TOML file, or None for LOCKGATE_CONFIG or ./lockgate.toml; overrides: {group: {key: value}}, with the
    highest priority, None values are ignored; environment: os.environ by default. Raises SettingsError.
    """
    env = os.environ if environment is None else environment
    path = _config_path(config, env)
    file_values = _read_file(path, is_named=path != Path(DEFAULT_FILE)) if path else {}
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
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError(_explain(error, given, env_values, path)) from error
    settings._file = str(path or "")
    return settings


def _config_path(config: str | os.PathLike[str] | None, env: Mapping[str, str]) -> Path | None:
    named = str(config) if config else env.get("LOCKGATE_CONFIG", "")
    if named:
        return Path(named).expanduser()
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _read_file(path: Path, *, is_named: bool) -> dict[str, Any]:
    """is_named: by the user, who trusts it; it may be another user's."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8") if is_named else read_trusted(path))
    except UntrustedFile as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from error
    except ValueError as error:  # beside tomllib's own: no UTF-8, a number of thousands of digits
        raise SettingsError(f"the settings file {path} is not valid TOML: {str(error)[:200]}") from error
    except RecursionError:
        raise SettingsError(f"the settings file {path} is nested too deeply") from None
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
    # A shorthand has lower priority when both are set: it comes first and is overwritten.
    for name in sorted(
        (name for name in env if name.startswith(ENVIRONMENT_PREFIX)), key=lambda name: name not in _SHORTHANDS
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
    if place in _LISTS:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if example := _OBJECTS.get(place):
        try:
            return parse_json(text)
        except ValueError as error:
            raise SettingsError(f"{name} must be a JSON object, such as {example}") from error
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
    """The right key in the wrong group is the most common mistake."""
    found = [f"{group}.{key}" for group, keys in _known().items() if key in keys]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _did_you_mean(word: str, candidates: Any) -> str:
    names = list(dict.fromkeys(candidates))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; valid names are {', '.join(names)}"


def _explain(
    error: ValidationError,
    given: Mapping[str, Mapping[str, Any]],
    env_values: Mapping[tuple[str, str], Any],
    path: Path | None,
) -> str:
    sentences = []
    for detail in error.errors():
        group, key = (str(part) for part in (*detail["loc"], "", "")[:2])
        if key in given.get(group, {}):
            origin = _OPTIONS.get((group, key), f"--{key.replace('_', '-')}")
        elif (group, key) in env_values:
            origin = next((name for name, place in _SHORTHANDS.items() if place == (group, key)), variable(group, key))
            origin = variable(group, key) if variable(group, key) in os.environ else origin
        else:
            origin = f"{path}: {group}.{key}"
        sentences.append(f"{origin} cannot be {detail['input']!r}: {detail['msg'][:1].lower()}{detail['msg'][1:]}")
    return "; ".join(sentences)
