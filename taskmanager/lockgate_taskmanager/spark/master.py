"""Connects to a Spark master or Spark Connect server before Java is started for it.

By default Spark tries an unreachable address for 70 s (a Connect client for minutes) and then reports that its context
is stopped.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

from lockgate_common.masking import bare

from lockgate_taskmanager.spark.errors import EngineError

TIMEOUT_S = 5.0  # for one address
_DEFAULT_PORTS = {"spark": 7077, "sc": 15002}
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^\[\]:;/]+)(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of a Spark application: its name, and where executors find it.

    name: the task manager's id; bind, advertise: hosts of the task manager's exchange, empty for loopback.
    """

    name: str = ""
    bind: str = ""
    advertise: str = ""

    @property
    def application(self) -> str:
        """The application's name in Spark's UI."""
        return f"lockgate {self.name}".strip()

    def settings(self, local_address: str) -> dict[str, str]:
        """Where the driver listens. local_address: of this machine on the route to the master, empty when not known.

        A task manager that is reached from outside has a configured address; otherwise it is the one by which the
        master was reached.
        """
        if self.advertise and not _is_loopback(self.advertise):
            bind = self.bind if self.bind and not _is_loopback(self.bind) else "0.0.0.0"
            return {"spark.driver.host": self.advertise, "spark.driver.bindAddress": bind}
        if local_address:
            return {"spark.driver.host": local_address, "spark.driver.bindAddress": local_address}
        return {}


NO_DRIVER = Driver()


def addresses(master: str) -> tuple[tuple[str, int], ...]:
    """Host and port of each master in `spark://h:p,h:p` or `sc://h:p/;...`. Raises EngineError."""
    scheme, _, rest = master.partition("://")
    found = []
    for text in re.split(r"[/;]", rest)[0].split(","):
        match = _ADDRESS.fullmatch(text.strip())
        if match is None or int(match.group(2) or 1) not in range(1, 65536):
            raise EngineError(f"'{master}' is not a Spark master: '{text}' is not HOST:PORT")
        found.append((match.group(1).strip("[]"), int(match.group(2) or _DEFAULT_PORTS[scheme])))
    return tuple(found)


def masked(master: str) -> str:
    """The master in messages: without the token that may follow a Connect server's address."""
    return bare(master, ";").removesuffix("/")


def reach(master: str) -> str:
    """Connects to the first address that answers; returns this machine's own address on that connection.

    Raises EngineError after at most TIMEOUT_S for each address.
    """
    complaints = []
    for host, port in addresses(master):
        try:
            with socket.create_connection((host, port), TIMEOUT_S) as connection:
                return str(connection.getsockname()[0])
        except socket.gaierror:
            complaints.append(f"the host name {host} cannot be resolved")
        except TimeoutError:
            complaints.append(f"no answer from {host}:{port} in {TIMEOUT_S:g} s")
        except OSError as error:
            complaints.append(f"{host}:{port}: {error.strerror or error}")
    kind = "Spark Connect server" if master.startswith("sc://") else "Spark master"
    problems = "; ".join(complaints)
    raise EngineError(f"the {kind} {masked(master)} cannot be reached ({problems}); start it, or fix the address")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
