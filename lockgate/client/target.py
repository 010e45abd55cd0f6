"""Which cluster a command or a pipeline file uses, and with which credentials.

In this order: the address given (`--cluster`: `host:port,host:port`, or the directory of a `lockgate cluster`),
LOCKGATE_CLUSTER, the settings file, `./.lockgate`, and finally 127.0.0.1:7070.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lockgate_common.json_input import parse_json
from lockgate_common.security import Credentials, TlsFiles, default_secret_file
from lockgate_common.trusted_files import UntrustedFile, read_trusted

from lockgate.errors import ClusterFileError, SettingsError

if TYPE_CHECKING:
    from lockgate.settings import Settings

CLUSTER_FILE = "cluster.json"
DEFAULT_DIRECTORY = ".lockgate"
DEFAULT_ADDRESS = "127.0.0.1:7070"
_DEFAULT_ORIGIN = "the default address"
_ADDRESS = re.compile(r"^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$")


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """A cluster to talk to.

    coordinators: `host:port` each, may be empty when `zookeeper` is set; zookeeper: `host:port,...` or empty; name: the
    cluster's name in ZooKeeper; origin: the source of these settings, in messages; directory: of the `lockgate cluster`
    that it is, None for any other.
    """

    coordinators: tuple[str, ...]
    zookeeper: str = ""
    name: str = "default"
    credentials: Credentials = field(default_factory=Credentials)
    origin: str = "the default"
    session_timeout_ms: int = 4000
    directory: Path | None = None

    @property
    def is_default(self) -> bool:
        """Nothing names a cluster."""
        return self.origin == _DEFAULT_ORIGIN


def find_cluster(
    cluster: str | None = None,
    zookeeper: str | None = None,
    secret_file: str | None = None,
    config: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> ClusterTarget:
    """The cluster to use. Raises SettingsError with one sentence."""
    from lockgate.settings import load_settings

    overrides: dict[str, dict[str, Any]]
    overrides = {"cluster": {"name": name}, "zookeeper": {"hosts": zookeeper}, "security": {"secret_file": secret_file}}
    settings = load_settings(config, overrides)
    is_secret_named = bool(secret_file or "LOCKGATE_SECRET_FILE" in os.environ)
    named = cluster or os.environ.get("LOCKGATE_CLUSTER", "")
    if named:
        where = "--cluster" if cluster else "LOCKGATE_CLUSTER"
        target, found = _read_target(named, where, is_secret_named)
        target = replace(target, zookeeper=zookeeper or target.zookeeper)
    elif zookeeper or settings.cluster.coordinators or settings.zookeeper.hosts:
        target, found = _from_settings(settings, zookeeper), {}
    elif (Path(DEFAULT_DIRECTORY) / CLUSTER_FILE).is_file():
        target, found = _read_directory(Path(DEFAULT_DIRECTORY), is_secret_named)
    else:
        target, found = ClusterTarget((DEFAULT_ADDRESS,), origin=_DEFAULT_ORIGIN), {}
    if found:
        found["tls"] = found.get("tls", {}) | settings.tls.model_dump(exclude_unset=True)
        settings = load_settings(config, overrides | found)
    credentials = settings.credentials()
    return replace(
        target,
        name=settings.cluster.name,
        credentials=replace(credentials, zookeeper=credentials.zookeeper or target.credentials.zookeeper),
        session_timeout_ms=settings.zookeeper.session_timeout_ms,
    )


def _from_settings(settings: Settings, zookeeper: str | None) -> ClusterTarget:
    if zookeeper:
        return ClusterTarget((), settings.zookeeper.hosts, origin="--zookeeper")
    return ClusterTarget(
        tuple(_checked(coordinator, "cluster.coordinators") for coordinator in settings.cluster.coordinators),
        settings.zookeeper.hosts,
        origin="the settings",
    )


_Found: TypeAlias = dict[str, dict[str, Any]]  # what a `cluster.json` says beside addresses, as overrides of settings


def _read_target(named: str, where: str, is_secret_named: bool) -> tuple[ClusterTarget, _Found]:
    addresses = [part.strip() for part in named.split(",") if part.strip()]
    if addresses and all(_ADDRESS.match(address) for address in addresses):
        return ClusterTarget(tuple(_checked(address, where) for address in addresses), origin=where), {}
    directory = Path(named).expanduser()
    if directory.name == CLUSTER_FILE:
        directory = directory.parent
    if not directory.is_dir():
        raise SettingsError(
            f"{where} {named!r} is neither HOST:PORT (several separated by commas) nor the directory of a "
            "`lockgate cluster`"
        )
    return _read_directory(directory, is_secret_named)


def _read_directory(directory: Path, is_secret_named: bool) -> tuple[ClusterTarget, _Found]:
    """is_secret_named: elsewhere, which counts more."""
    path = directory / CLUSTER_FILE
    try:
        content = parse_json(read_trusted(path))
        coordinators = tuple(_checked(str(coordinator), str(path)) for coordinator in content["coordinators"])
        zookeeper, secret = str(content.get("zookeeper", "")), str(content.get("secret_file", ""))
        tls = dict(content.get("tls") or {})
        zookeeper_tls = TlsFiles(**files) if (files := content.get("zookeeper_tls")) else None
    except FileNotFoundError:
        raise ClusterFileError(
            f"no cluster is running in {directory}: it has no {CLUSTER_FILE}; start one with "
            f"`lockgate cluster --dir {directory}`",
            directory,
        ) from None
    except UntrustedFile as error:
        raise SettingsError(str(error)) from error
    except UnicodeDecodeError as error:
        raise ClusterFileError(f"{path} is not UTF-8 text; is it from another version?", directory) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterFileError(f"cannot read {path}: {error!r}; is it from another version?", directory) from error
    found: _Found = {"tls": tls} if tls else {}
    if secret and not is_secret_named:
        found["security"] = {"secret_file": _known_secret(secret, path)}
    credentials = Credentials(zookeeper=zookeeper_tls)
    return ClusterTarget(coordinators, zookeeper, credentials=credentials, origin=str(path), directory=directory), found


def _known_secret(secret: str, path: Path) -> str:
    """The secret file that a `cluster.json` names: in the same folder or the user's own, or it is any private file."""
    known = default_secret_file()
    if Path(secret).resolve() != known.resolve() and path.parent.resolve() not in Path(secret).resolve().parents:
        raise SettingsError(
            f"{path} names the secret file {secret}, which is neither in its own folder nor {known}; if that is right, "
            f"say so with LOCKGATE_SECRET_FILE or --secret-file"
        )
    return secret


def _checked(address: str, where: str) -> str:
    if not _ADDRESS.match(address) or not 0 < int(address.rsplit(":", 1)[1]) < 65536:
        raise SettingsError(f"{where}: {address[:100]!r} is not HOST:PORT with a port from 1 to 65535")
    return address
