"""Where jobs may read and write whose authors may not run code. Paths are compared after symbolic links are followed.

Without this such a job could read the cluster's secret, or write a file that a program reads as code.
"""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from lockgate_common.uris import LOCAL, scheme_of

SLOTS_PREFIX = "lockgate-slots-"
"""Of folders in shared memory that hold records of all jobs."""

_SHARED_MEMORY = "/dev/shm"
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/run", "/var/run", "/boot")
_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/var/spool", sys.prefix, sys.base_prefix)
_OWN_NAMES = frozenset({"lockgate.toml", "version-2"})  # the settings; the data and logs of a ZooKeeper server
_KEYS = (".key", ".pem")
_AZURE = ("abfs", "abfss")
_OF_ONE_CLUSTER = ("hdfs", "viewfs")  # which has many names, so hosts are not compared
_REMOTE = ("s3", "s3a", "gs", "gcs", *_AZURE, *_OF_ONE_CLUSTER)
"""What is opened elsewhere; all other schemes are refused, because they may lead to this machine (`fsspec+file://`)."""

_OWN = "it belongs to the cluster itself"
_UNRESOLVED = "the path cannot be resolved"


def cluster_folder(storage: str, cluster: str) -> str:
    """The folder of a cluster in its storage, a local path or a URI, whose options stay behind it."""
    folder, mark, options = storage.partition("?") if scheme_of(storage) else (storage, "", "")
    return f"{folder.rstrip('/')}/{cluster}{mark}{options}"


class Places:
    """What is private, and what is allowed. Thread safe: entries are only added."""

    def __init__(self, private: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        """private: paths and URIs of the cluster's own files and folders; folders: the only ones that are allowed.

        Without folders everything is allowed that is neither private, nor the system's, nor hidden.
        """
        self._folders = tuple(dict.fromkeys(map(_normal, folders)))
        self._private: tuple[str, ...] = ()
        for place in private:
            self.add(place)

    def add(self, place: str) -> None:
        """Another private place: a path or URI of a file or folder."""
        if place and (found := _normal(place)) not in self._private:
            self._private = (*self._private, found)

    def problem(self, path_or_uri: str, *, writes: bool = False) -> str:
        """Why a job may not use it, as a clause; "" when it may."""
        scheme = scheme_of(path_or_uri)
        if scheme in _REMOTE:
            return self._remote_problem(path_or_uri)
        if scheme not in ("", LOCAL):
            return f"such a job does not use {scheme}://"
        try:
            path = _local(path_or_uri)
        except ValueError:
            return _UNRESOLVED
        return self.path_problem(path, writes=writes)

    def path_problem(self, path: str, *, writes: bool = False) -> str:
        """The same for what is opened as a path of this machine, whatever it looks like: no URI, and no ~."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            return _UNRESOLVED
        if any(_is_private(real, place) for place in self._private) or _is_own_by_name(real):
            return _OWN
        allowed = max((folder for folder in self._folders if _is_within(real, folder)), key=len, default=None)
        if self._folders and allowed is None:
            return "taskmanager.folders does not allow it"
        return _system_problem(real, allowed, writes)

    def _remote_problem(self, uri: str) -> str:
        try:
            names = _normal(uri)
        except ValueError:
            return _UNRESOLVED
        remote = [place for place in self._private if not place.startswith("/")]
        if any(_is_within(names, place) for place in remote):
            return _OWN
        if self._folders and not any(_is_within(names, folder) for folder in self._folders):
            return "taskmanager.folders does not allow it"
        return ""


def _system_problem(real: str, allowed: str | None, writes: bool) -> str:
    """allowed: the folder that the operator allows, which may be one of these."""
    for root in (*_SYSTEM, *(_PROGRAMS if writes else ())):
        if not _is_within(real, root) or (allowed is not None and _is_within(allowed, root)):
            continue
        if root == "/dev" and _is_within(real, _SHARED_MEMORY) and SLOTS_PREFIX not in real:
            continue
        return f"jobs do not {'write' if root in _PROGRAMS else 'use'} what is in {root}"
    below = real[len(allowed or "") :]
    if any(name.startswith(".") for name in below.split("/")):
        return "it is hidden: a name in its path begins with a dot"
    return ""


def _is_private(real: str, place: str) -> bool:
    """place: private. Beside a private file lie its temporary names and copies, and keys."""
    if _is_within(real, place):
        return True
    folder, name = posixpath.split(place)
    if posixpath.dirname(real) != folder or os.path.isdir(place):
        return False
    mine, name = posixpath.basename(real), name.lstrip(".")
    return mine.endswith(_KEYS) or mine.lstrip(".").startswith((f"{name}.", f"{name}~"))


def _is_own_by_name(real: str) -> bool:
    return not _OWN_NAMES.isdisjoint(real.split("/"))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _local(text: str) -> str:
    """The path that is opened for a local path or a `file:` URI."""
    if scheme_of(text):
        return unquote(urlsplit(text).path)
    return os.path.abspath(os.path.expanduser(text))


def _normal(text: str) -> str:
    """A local path without links, or the names of a remote place: equal places are equal, prefixes are folders."""
    if scheme_of(text) in ("", LOCAL):
        return os.path.realpath(_local(text))
    parts = urlsplit(text)
    login, _, host = parts.netloc.rpartition("@")
    path = posixpath.normpath("/" + unquote(parts.path)).lstrip("/")
    scheme = parts.scheme.lower()
    if scheme in _OF_ONE_CLUSTER:
        return f"hdfs/{path}".rstrip("/")
    if scheme in _AZURE:  # CONTAINER@ACCOUNT/PATH, ACCOUNT.HOST/CONTAINER/PATH or CONTAINER/PATH
        container = login.partition(":")[0] or ("" if "." in host else host)
        return f"{container}/{path}".strip("/")
    return f"{host}/{path}".rstrip("/")
