"""Settings that all server processes share, and their validation. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockgate_common.addresses import address_problem, port_problem, zookeeper_problem

OFF = "off"
"""In place of an address: this page is not served."""
MAX_SLOTS = 1_024
"""the limit for one task manager"""

_BOUNDS: Mapping[str, tuple[int, int | None]] = {  # the smallest and the largest; None: any
    "session_timeout_ms": (500, 60_000),
    "connect_timeout_ms": (1, None),
    "heartbeat_ms": (20, None),
    "max_watchers": (1, None),
    "max_task_managers": (1, None),
    "max_jobs": (1, None),
    "max_client_streams": (1, None),
    "max_client_calls": (1, None),
    "max_client_requests": (1, None),
    "max_client_bytes": (1, None),
    "leader_grace_ms": (0, None),
    "slots": (1, MAX_SLOTS),
    "target_batch_ms": (10, None),
    "batch_interval_ms": (0, 60_000),
    "max_batch_bytes": (1024, None),
    "replay_log_bytes": (0, None),
    "warmup_runs": (0, None),
    "spark_niceness": (0, 19),
}

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class SettingsError(ValueError):
    """A setting that cannot work. The message names it and says what is allowed."""


def check_process(zookeeper: str, bind: str, advertise: str, names: Mapping[str, str]) -> None:
    """Raises SettingsError naming the first setting that cannot work.

    zookeeper: `host:port[,host:port...]`; bind, advertise: see `address_problem`; names: by setting.
    """
    if not zookeeper:
        raise SettingsError("zookeeper: no server is given; use host:port[,host:port...]")
    if problem := zookeeper_problem(zookeeper):
        raise SettingsError(f"zookeeper: {zookeeper!r} is invalid, {problem}")
    for setting, name in names.items():
        if not _NAME.fullmatch(name):
            raise SettingsError(f"{setting}: {name!r} is not a valid name; use 1 to 64 of A-Z a-z 0-9 . _ -")
    if problem := address_problem(bind, advertise):
        raise SettingsError(problem)


def check_page(setting: str, address: str) -> None:
    """Raises SettingsError unless it is where a page is served: host:port; empty for the default, or `off`."""
    if address not in ("", OFF) and (problem := port_problem(address)):
        raise SettingsError(f"{setting}: {problem}; give host:port, or {OFF}")


def number_problem(setting: str, value: int) -> str:
    """What is wrong with the number of a setting, without a subject; "" when nothing is, or it has no bounds."""
    least, most = _BOUNDS.get(setting, (value, value))
    if value < least:
        return f"too small; use {least} or more"
    return f"too large; use {most} or less" if most is not None and value > most else ""


def check_numbers(settings: object) -> None:
    """Raises SettingsError for the first setting of which the number is out of bounds."""
    for setting in _BOUNDS:
        value = getattr(settings, setting, None)
        if value is not None and (problem := number_problem(setting, value)):
            raise SettingsError(f"{setting}: {value} is {problem}")
