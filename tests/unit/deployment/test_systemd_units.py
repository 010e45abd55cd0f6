"""docker/systemd: systemd's own opinion of the units, the real command line's of what they run, and that all agree."""

from __future__ import annotations

import ast
import configparser
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from lockgate_common.security import load_secret
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_devtools.zookeeper.server import ZooKeeperServer, parse_members
from lockgate_ha.zookeeper.session import ZooKeeperSession
from lockgate_taskmanager.exchange.server import ExchangeServer
from lockgate_taskmanager.runtime.control_client import CLOSE_WAIT_S, ControlClient
from lockgate_taskmanager.runtime.task_manager import STOP_S, TaskManager
from lockgate_taskmanager.runtime.warmup import Warmup
from lockgate_taskmanager.spark import class_archive

from lockgate.cli import run
from lockgate.settings import Settings, load_settings
from tests.unit.deployment.manifests import ROOT

FOLDER = ROOT / "docker/systemd"
PAGE = (ROOT / "docs/bare-hosts.md").read_text(encoding="utf-8")
SETTINGS = "/etc/lockgate/lockgate.toml"
PROGRAM = "/opt/lockgate/bin/lockgate"
SERVERS = ("coordinator", "taskmanager")
ROLES = (*SERVERS, "zookeeper")
REQUIRED = "LOCKGATE_TEST_SYSTEMD"
"""Set to `required` where a skip is to count as a failure."""
# Known since systemd 254. An older one says so and goes on without them, which the units' comments reckon with.
NEWER = {"RestartSteps": 254, "RestartMaxDelaySec": 254}


def _file(role: str) -> Path:
    return FOLDER / f"lockgate-{role}.service"


class _Unit:
    """A unit file. Keys that stand twice in a section are refused, though systemd would take them."""

    def __init__(self, role: str) -> None:
        parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
        parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys are case-sensitive
        parser.read_string(_file(role).read_text(encoding="utf-8"))
        self.service = dict(parser["Service"])
        self.unit = dict(parser["Unit"])
        self.install = dict(parser["Install"])

    def arguments(self, variables: dict[str, str]) -> list[str]:
        """What it runs, `${NAME}` replaced by a variable's value, as systemd does."""
        words = shlex.split(self.service["ExecStart"].replace("\\\n", " "))
        return [re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], word) for word in words]

    @property
    def stop_timeout_s(self) -> float:
        seconds = self.service["TimeoutStopSec"]
        assert re.fullmatch(r"\d+s", seconds), seconds
        return float(seconds[:-1])


def _variables() -> dict[str, str]:
    """What host.env sets."""
    lines = (FOLDER / "host.env").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    assert len(dict(pairs)) == len(pairs), "a variable stands twice"
    return dict(pairs)


def _settings() -> Settings:
    """What the settings file says, without any variable."""
    return load_settings(FOLDER / "lockgate.toml", environment={})


# -- what systemd says ------------------------------------------------------------------------------------------------


def _systemd_version() -> int:
    """Of systemd-analyze; skips with the reason where there is none, or fails where it must be there."""
    if shutil.which("systemd-analyze") is None:
        reason = "there is no systemd-analyze on this machine (Debian: apt-get install systemd)"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    said = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[1])


@pytest.fixture(scope="module")
def systemd_version() -> int:
    return _systemd_version()


Verify = Callable[[str, str], list[str]]


@pytest.fixture
def complaints(tmp_path: Path, systemd_version: int) -> Verify:
    """Gives what systemd finds wrong with a text as the unit of a role."""

    def verify(role: str, text: str) -> list[str]:
        unit = tmp_path / _file(role).name
        # A program that exists: verify looks for it. It does not look for the user, nor for EnvironmentFile.
        unit.write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
        # Most of what is wrong it only tells, on stderr; the exit code is not the same in all versions. Other units of
        # this machine, which the unit asks for, are none of our business.
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        found = [line for line in said.stderr.splitlines() if not line.startswith("/") or line.startswith(str(unit))]
        too_new = [key for key, since in NEWER.items() if systemd_version < since]
        return [
            line for line in found if not any(f"Unknown key '{key}' in section [Service]" in line for key in too_new)
        ]

    return verify


@pytest.mark.parametrize("role", ROLES)
def test_systemd_takes_the_unit_without_a_word(role: str, complaints: Verify) -> None:
    assert complaints(role, _file(role).read_text(encoding="utf-8")) == []


BROKEN = {
    "unknown directive": ("ProtectHome=", "ProtectHom=", "ProtectHom"),
    "misspelt section": ("[Install]", "[Instal]", "Instal"),
    "a directive in the wrong section": ("StartLimitIntervalSec=0", "KillMode=mixed", "KillMode"),
    "no such kill mode": ("KillMode=mixed", "KillMode=most", "kill mode"),
    "no such time": ("TimeoutStopSec=", "TimeoutStopSec=about ", "time value"),
    "no such restart policy": ("Restart=always", "Restart=often", "restart specifier"),
    "no such group of system calls": ("@system-service", "@system-servant", "@system-servant"),
    "no such address family": ("AF_NETLINK", "AF_NETLONK", "AF_NETLONK"),
    "a state folder outside /var/lib": ("StateDirectory=", "StateDirectory=/srv/", "StateDirectory"),
    "nothing to run": ("ExecStart=", "#ExecStart=", "no ExecStart"),
    "a program that is not there": (PROGRAM, "/opt/lockgate/bin/lockgat", "is not executable"),
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("damage", BROKEN)
def test_systemd_would_have_reported_it(role: str, damage: str, complaints: Verify) -> None:
    good, bad, complaint = BROKEN[damage]
    text = _file(role).read_text(encoding="utf-8")
    assert good in text
    assert any(complaint in line for line in complaints(role, text.replace(good, bad, 1)))


@pytest.mark.parametrize(("wanted", "outcome"), [("required", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_systemd_the_tests_are_skipped_unless_it_is_required(
    wanted: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(REQUIRED, wanted)
    with pytest.raises(outcome, match="there is no systemd-analyze"):
        _systemd_version()


# -- what the units run -----------------------------------------------------------------------------------------------


@pytest.fixture
def on_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives this process the variables of host.env, and a secret, which lies elsewhere on this machine."""
    for name in [name for name in os.environ if name.startswith("LOCKGATE_")]:
        monkeypatch.delenv(name)
    for name, value in _variables().items():
        monkeypatch.setenv(name, value)
    secret = tmp_path / "secret"
    secret.write_text("a secret of sixteen characters\n", encoding="utf-8")
    secret.chmod(0o600)
    monkeypatch.setenv("LOCKGATE_SECRET_FILE", str(secret))


def _started(role: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings that the unit's command hands to its process, which is not started."""
    seen: list[Any] = []

    def note(settings: Any, *_web: Any) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(f"lockgate_{role}.runtime.process.run", note)
    program, *arguments = _Unit(role).arguments({})
    assert program == PROGRAM
    assert arguments[1:] == ["--config", SETTINGS]
    assert run([arguments[0], "--config", str(FOLDER / "lockgate.toml")]) == 0
    (settings,) = seen
    settings.check()
    return settings


@pytest.mark.parametrize("role", SERVERS)
def test_the_command_line_takes_what_a_unit_gives_it(role: str, on_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del on_host
    settings = _started(role, monkeypatch)
    group = getattr(_settings(), role)
    assert settings.bind == group.bind
    assert settings.bind.startswith("0.0.0.0:")
    assert settings.advertise == _variables()[f"LOCKGATE_{role.upper()}_ADVERTISE"]
    assert settings.advertise.rpartition(":")[2] == settings.bind.rpartition(":")[2]
    assert settings.zookeeper == _settings().zookeeper.hosts
    assert settings.credentials.tls is not None


def test_without_host_env_no_server_starts(on_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del on_host
    for role in SERVERS:
        monkeypatch.delenv(f"LOCKGATE_{role.upper()}_ADVERTISE")
        with pytest.raises(ValueError, match="set advertise"):
            _started(role, monkeypatch)


def _zookeeper(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """folder, port, number, ensemble, bind and options of the server, as the unit's command line hands them on."""
    seen: list[tuple[Any, ...]] = []

    def note(*given: Any) -> int:
        seen.append(given)
        return 0

    monkeypatch.setattr("lockgate.commands.zookeeper._run_member", note)
    program, *arguments = _Unit("zookeeper").arguments(_variables())
    assert program == PROGRAM
    assert arguments.count(SETTINGS) == 1
    assert run([str(FOLDER / "lockgate.toml") if word == SETTINGS else word for word in arguments]) == 0
    (given,) = seen
    return given


def test_the_zookeeper_unit_runs_the_server_that_the_settings_name(
    on_host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del on_host
    folder, port, number, ensemble, bind, options = _zookeeper(monkeypatch)
    members = parse_members(ensemble)
    assert 1 <= number <= len(members)
    assert len(members) % 2 == 1
    assert bind == "0.0.0.0"
    assert options["tls"] == _settings().zookeeper_tls()
    assert ",".join(f"{member.host}:{port}" for member in members) == _settings().zookeeper.hosts
    assert folder == Path("/var/lib") / _Unit("zookeeper").service["StateDirectory"]
    for member in members:
        assert f"| {member.peer_port}, {member.election_port} |" in PAGE
    assert f"| {port} |" in PAGE


# -- that all agree ---------------------------------------------------------------------------------------------------


def test_ports_are_the_same_in_the_settings_for_commands_and_on_the_page() -> None:
    settings = _settings()
    for role in SERVERS:
        assert f"| {getattr(settings, role).bind.rpartition(':')[2]} | {role.replace('taskm', 'task m')} |" in PAGE
    port = settings.coordinator.bind.rpartition(":")[2]
    assert {coordinator.rpartition(":")[2] for coordinator in settings.cluster.coordinators} == {port}
    own = _variables()["LOCKGATE_COORDINATOR_ADVERTISE"]
    assert own in settings.cluster.coordinators


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_is_the_users_and_is_found(role: str) -> None:
    unit = _Unit(role)
    assert unit.service["User"] == unit.service["Group"] == "lockgate"
    assert re.search(r"^useradd .*--user-group .* lockgate$", PAGE, re.M)
    assert unit.service["EnvironmentFile"] == "/etc/lockgate/host.env"
    assert unit.install["WantedBy"] == "multi-user.target"
    assert f"| `{_file(role).name}` |" in PAGE
    assert re.search(rf"^systemctl enable --now .*lockgate-{role}\b", PAGE, re.M)
    # Without end, and not held back by the limit of five starts in ten seconds.
    assert (unit.service["Restart"], unit.unit["StartLimitIntervalSec"]) == ("always", "0")


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_works_in_folders_that_it_may_write(role: str) -> None:
    unit = _Unit(role)
    state = PurePosixPath("/var/lib") / unit.service["StateDirectory"]
    assert unit.service["ProtectSystem"] == "strict"
    assert PurePosixPath(unit.service["WorkingDirectory"]).is_relative_to(state)
    if role == "zookeeper":
        return
    storage = _settings().storage.directory
    assert unit.service["ReadWritePaths"] == f"-{storage}"
    assert unit.unit["RequiresMountsFor"] == storage
    assert f"mount one file system at `{storage}`" in PAGE


@pytest.mark.spark
def test_a_task_manager_finds_its_scratch_folder_and_the_class_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _Unit("taskmanager").service
    work = PurePosixPath(_settings().taskmanager.work_dir)
    assert work.is_relative_to(PurePosixPath("/var/lib") / service["StateDirectory"])
    name, value = service["Environment"].split("=")
    monkeypatch.setenv(name, value)
    cache = f"/var/cache/{service['CacheDirectory']}"
    archive = class_archive.path()
    assert archive is not None, "there is no Java"
    assert str(archive.parent) == cache
    assert f"install -d -o lockgate -g lockgate -m 0755 {cache}\n" in PAGE
    assert f"runuser -u lockgate -- env {name}={value} lockgate prepare\n" in PAGE


def test_the_page_puts_secret_certificates_and_settings_where_they_are_looked_for() -> None:
    settings = _settings()
    assert f"install -o lockgate -g lockgate -m 0400 secret {settings.security.secret_file}\n" in PAGE
    tls = settings.tls
    paths = [PurePosixPath(item) for item in (tls.certificate, tls.key, tls.authority)]
    (folder,) = {path.parent for path in paths}
    assert f"-m 0640 {' '.join(path.name for path in paths)} {folder}/\n" in PAGE
    (files,) = re.findall(r"^install -m 0644 (.*) /etc/lockgate/$", PAGE, re.M)
    assert {f"/etc/lockgate/{part}" for part in files.split()} == {SETTINGS, "/etc/lockgate/host.env"}
    assert all((FOLDER / part).is_file() for part in files.split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the page's openssl commands were run."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl on this machine, which the documented commands need")
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    folder = tmp_path_factory.mktemp("made")
    subprocess.run(["bash", "-ec", commands], cwd=folder, check=True, capture_output=True)
    return folder


def _fits(made: Path, host: str, *wanted: str) -> bool:
    command = ["openssl", "verify", "-CAfile", "ca.pem", *wanted, f"{host}/host.pem"]
    return subprocess.run(command, cwd=made, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("address", _settings().cluster.coordinators)
def test_the_pages_certificates_fit_the_hosts(address: str, made: Path) -> None:
    host = address.rpartition(":")[0]
    assert _fits(made, host, "-verify_hostname", host)
    assert _fits(made, host, "-verify_hostname", "localhost")
    assert _fits(made, host, "-verify_ip", "127.0.0.1")
    assert not _fits(made, host, "-verify_hostname", "c9.example")
    assert (made / host / "host.key").is_file()
    assert len(load_secret(made / "secret", create=False)) == 64


# -- stopping ---------------------------------------------------------------------------------------------------------


def _waits_s(function: Callable[..., Any]) -> float:
    """The sum of all limits that a function waits up to: numbers and constants given to join, wait, stop.

    A loop over a tuple that is written out counts once for each of its elements.
    """
    names = inspect.unwrap(function).__globals__

    def limit(call: ast.Call) -> float:
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in ("timeout", "grace"))]
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in ("join", "wait", "stop") and given):
            return 0.0
        value = names[given[0].id] if isinstance(given[0], ast.Name) else ast.literal_eval(given[0])
        return float(value)

    def total(node: ast.AST) -> float:
        times = len(node.iter.elts) if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple) else 1
        own = limit(node) if isinstance(node, ast.Call) else 0.0
        return times * (own + sum(total(child) for child in ast.iter_child_nodes(node)))

    found = total(ast.parse(textwrap.dedent(inspect.getsource(function))))
    assert found > 0, f"{function.__qualname__} waits for something else now: look what, and how long"
    return found


def test_the_limits_of_a_function_are_found() -> None:
    assert _waits_s(ControlClient.stop) == CLOSE_WAIT_S + 3 * 5.0
    assert _waits_s(TaskManager.stop) == STOP_S


def test_systemd_does_not_kill_processes_that_are_still_stopping() -> None:
    # What ZooKeeper is asked last, and the end of the session.
    session_s = _settings().zookeeper.session_timeout_ms / 1000 + _waits_s(ZooKeeperSession.close)
    parts: tuple[Callable[..., Any], ...] = (
        ExchangeServer.stop,
        ControlClient.stop,
        TaskManager.stop,
        Warmup.stop,
    )
    longest_s = {
        "coordinator": session_s + _waits_s(Coordinator.stop),
        "taskmanager": session_s + sum(_waits_s(part) for part in parts),
        "zookeeper": inspect.signature(ZooKeeperServer.stop).parameters["timeout_ms"].default / 1000,
    }
    for role, longest in longest_s.items():
        service = _Unit(role).service
        assert _Unit(role).stop_timeout_s >= longest + 5, f"{role}: threads and Spark need a little more than {longest}"
        assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed"), "the JVM gets no signal"
    assert f"After {_Unit('coordinator').stop_timeout_s:.0f} seconds (task manager: 60)" in PAGE
    assert _Unit("taskmanager").stop_timeout_s == 60
