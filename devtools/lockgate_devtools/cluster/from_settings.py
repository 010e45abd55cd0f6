"""What a cluster on this machine takes from the settings file."""

from __future__ import annotations

from typing import Any

from lockgate.settings import load_settings


def tls_options(config: str | None = None) -> dict[str, Any]:
    """Fields of ClusterOptions: TLS among the processes, and with ZooKeeper; {} for plain connections.

    config: None for the one that commands read. Raises SettingsError.
    """
    settings = load_settings(config)
    found = {"tls": settings.server_tls_files(), "zookeeper_tls": settings.zookeeper_tls()}
    return {name: files for name, files in found.items() if files is not None}
