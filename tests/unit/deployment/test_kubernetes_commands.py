"""What the pods of the manifests would run, with the real command line, settings file and probes."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from lockgate_common.security import TlsFiles
from lockgate_common.trusted_files import read_trusted
from lockgate_devtools.zookeeper.server import parse_members

from lockgate.cli import cli, run
from lockgate.client import find_cluster
from lockgate.errors import SettingsError
from lockgate.settings import Settings, load_settings
from tests.unit.deployment.manifests import ROOT, Pod, client, expand, pods, settings_text

SERVERS = [*pods("coordinator"), *pods("taskmanager")]


def _name(pod: Pod) -> str:
    return pod.name


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    """The ConfigMap's file, on this machine."""
    path = tmp_path / "lockgate.toml"
    path.write_text(settings_text(), encoding="utf-8")
    return path


@pytest.fixture
def in_pod(settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives this process the variables of a pod; files are elsewhere on this machine."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of sixteen characters\n", encoding="utf-8")
    secret.chmod(0o600)

    def enter(pod: Pod) -> None:
        for name, value in pod.variables().items():
            monkeypatch.setenv(name, value)
        assert pod.variables()["LOCKGATE_CONFIG"] == "/etc/lockgate/lockgate.toml"
        monkeypatch.setenv("LOCKGATE_CONFIG", str(settings_file))
        monkeypatch.setenv("LOCKGATE_SECRET_FILE", str(secret))

    return enter


def _started(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings that the pod's command hands to its process, which is not started."""
    seen: list[Any] = []
    monkeypatch.setattr(f"lockgate_{pod.role}.runtime.process.run", lambda settings, *_web: seen.append(settings) or 0)
    assert pod.arguments()[:2] == ["lockgate", pod.role]
    assert run(pod.arguments()[1:]) == 0
    (settings,) = seen
    settings.check()
    return settings


def _port(pod: Pod, name: str) -> int:
    (port,) = [port["containerPort"] for port in pod.container["ports"] if port["name"] == name]
    return int(port)


def _settings(settings_file: Path) -> Settings:
    return load_settings(settings_file, environment={})


def _settings_of_the_cluster() -> Settings:
    return Settings.model_validate(tomllib.loads(settings_text()))


@pytest.mark.parametrize("pod", SERVERS, ids=_name)
def test_a_pod_starts_and_is_found_under_its_own_name(
    pod: Pod, in_pod: Any, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pod(pod)
    settings = _started(pod, monkeypatch)
    port = _port(pod, "api" if pod.role == "coordinator" else "exchange")
    assert settings.bind == f"0.0.0.0:{port}"
    assert settings.advertise == f"{pod.domain}:{port}"
    assert settings.metrics == f"0.0.0.0:{_port(pod, 'metrics')}"
    own_id = settings.coordinator_id if hasattr(settings, "coordinator_id") else settings.task_manager_id
    assert own_id == pod.name
    assert settings.zookeeper == _settings(settings_file).zookeeper.hosts


@pytest.mark.parametrize("pod", SERVERS, ids=_name)
def test_the_files_of_the_settings_lie_where_the_pod_has_them(pod: Pod, settings_file: Path) -> None:
    settings, mounts = _settings(settings_file), pod.mounts()
    assert mounts[str(Path(pod.variables()["LOCKGATE_CONFIG"]).parent)]["configMap"]["name"] == "lockgate-settings"
    tls = settings.tls
    for path, key in zip((tls.certificate, tls.key, tls.authority), ("tls.crt", "tls.key", "ca.crt"), strict=True):
        folder, _, name = path.rpartition("/")
        assert mounts[folder]["secret"]["secretName"] == "lockgate-tls"
        assert name == key
    assert mounts[settings.storage.directory]["persistentVolumeClaim"]["claimName"] == "lockgate-storage"


@pytest.mark.parametrize("pod", pods(), ids=_name)
def test_the_secret_is_at_its_setting_and_private_to_the_pods_user(pod: Pod, settings_file: Path) -> None:
    settings, mounts = _settings(settings_file), pod.mounts()
    secret_folder = settings.security.secret_file.rpartition("/")[0]
    assert mounts[secret_folder]["emptyDir"]["medium"] == "Memory"
    (copier,) = pod.spec["initContainers"]
    assert {volume_mount["name"]: volume_mount["mountPath"] for volume_mount in copier["volumeMounts"]} == {
        "secret": "/secret",
        mounts[secret_folder]["name"]: secret_folder,
    }


def _copied(pod: Pod, folder: Path, keys: dict[str, set[str]]) -> Path:
    """Where the pod's init container has copied these keys of secrets, which it finds as kubelet mounts them."""
    mounted, private = folder / "secret", folder / "private"
    data = mounted / "..data"
    data.mkdir(parents=True)
    private.mkdir()
    for key in set().union(*keys.values()):
        (data / key).write_text(f"{key}, of sixteen characters\n", encoding="utf-8")
        (data / key).chmod(0o640)
        (mounted / key).symlink_to(f"..data/{key}")
    (copier,) = pod.spec["initContainers"]
    command = [
        argument.replace("/run/lockgate", str(private)).replace("/secret/", f"{mounted}/")
        for argument in copier["args"]
    ]
    subprocess.run(command, check=True, timeout=60)
    return private


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize(
    "pod", [*(pods(role)[0] for role in ("zookeeper", "coordinator", "taskmanager")), client()], ids=_name
)
def test_the_secret_and_the_tokens_are_copied_for_the_pods_user_alone(
    pod: Pod, has_tokens: bool, settings_file: Path, tmp_path: Path
) -> None:
    keys = pod.secret_keys()
    assert ("lockgate-tokens" in keys) == (pod.role in ("coordinator", "taskmanager"))
    if not has_tokens:
        keys.pop("lockgate-tokens", None)
    private = _copied(pod, tmp_path, keys)
    assert {path.name for path in private.iterdir()} == set().union(*keys.values())
    for path in private.iterdir():
        assert read_trusted(path, is_secret=True) == f"{path.name}, of sixteen characters\n"
    settings = _settings(settings_file)
    copied = [Path(settings.security.secret_file).name, *([settings.tokens_path.name] if len(keys) > 1 else [])]
    assert {path.name for path in private.iterdir()} == set(copied)
    assert settings.tokens_path.parent == Path(settings.security.secret_file).parent


def test_only_tokens_may_be_missing() -> None:
    for pod in SERVERS:
        (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == "secret"]
        optional = {
            source["secret"]["name"]: source["secret"].get("optional") for source in volume["projected"]["sources"]
        }
        assert optional == {"lockgate-secret": None, "lockgate-tokens": True}


@pytest.mark.parametrize("pod", SERVERS, ids=_name)
def test_the_first_job_writes_where_its_task_managers_may(pod: Pod, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", str(ROOT / "examples/first_job.py"), "--dry-run"]) == 0
    graph = json.loads(capsys.readouterr().out)
    (sink,) = [operator["file_sink"] for operator in graph["vertices"][0]["operators"] if "file_sink" in operator]
    (mount,) = [
        mount for mount in pod.container["volumeMounts"] if Path(mount["mountPath"]) in Path(sink["path"]).parents
    ]
    assert not mount.get("readOnly")
    assert "persistentVolumeClaim" in pod.mounts()[mount["mountPath"]], "all have the same"


@pytest.mark.parametrize("pod", [*pods(), client()], ids=_name)
def test_a_pod_works_in_a_folder_that_it_may_write(pod: Pod) -> None:
    assert "emptyDir" in pod.mounts()[pod.container["workingDir"]]
    assert "emptyDir" in pod.mounts()["/tmp"]


def test_a_coordinator_may_start_for_longer_than_it_waits_for_zookeeper(settings_file: Path) -> None:
    (pod, *_rest) = pods("coordinator")
    probe = pod.container["startupProbe"]
    waits_s = _settings(settings_file).zookeeper.connect_timeout_ms / 1000
    assert probe["failureThreshold"] * probe["periodSeconds"] > waits_s >= 300


def test_a_task_manager_has_room_for_spark(settings_file: Path) -> None:
    group = _settings(settings_file).taskmanager
    (pod, *_rest) = pods("taskmanager")
    gib = 1 << 30
    heap = int(group.spark_options["spark.driver.memory"].removesuffix("g")) * gib
    limit = int(pod.container["resources"]["limits"]["memory"].removesuffix("Gi")) * gib
    shared = int(pod.mounts()["/dev/shm"]["emptyDir"]["sizeLimit"].removesuffix("Mi")) << 20
    assert "emptyDir" in pod.mounts()[group.work_dir]
    assert shared > 256 << 20, "below that Lockgate does not use it"
    assert heap + shared < limit, "the keyed state and Python need some, too"


@pytest.mark.parametrize("pod", pods("zookeeper"), ids=_name)
def test_a_zookeeper_server_knows_its_number(
    pod: Pod, in_pod: Any, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pod(pod)
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr("lockgate.commands.zookeeper._run_member", lambda *given: seen.append(given) or 0)
    assert run(pod.arguments()[1:]) == 0
    ((folder, port, number, ensemble, bind, given),) = seen
    assert given["secret"], "or everyone may make nodes"
    assert given["tls"] == TlsFiles("/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt")
    assert pod.mounts()["/tls"]["secret"]["secretName"] == "lockgate-tls"
    everyone = pods("zookeeper")
    members = parse_members(ensemble)
    assert [member.host for member in members] == [pod.domain for pod in everyone]
    assert members[number - 1].host == pod.domain
    assert (members[number - 1].peer_port, members[number - 1].election_port) == (
        _port(pod, "peer"),
        _port(pod, "election"),
    )
    assert (port, bind) == (_port(pod, "client"), "0.0.0.0")
    assert pod.mounts()[str(folder)]["metadata"]["name"] == "data"
    wanted = ",".join(f"{pod.domain}:{port}" for pod in everyone)
    assert _settings(settings_file).zookeeper.hosts == wanted


def _parse(arguments: list[str]) -> click.Context:
    """Parses as `lockgate` would, without running. Raises click.UsageError."""
    command = cli.get_command(click.Context(cli), arguments[0])  # type: ignore[attr-defined]
    return command.make_context(arguments[0], list(arguments[1:]))


@pytest.mark.parametrize("pod", pods(), ids=_name)
def test_probes_ask_the_pods_own_port_and_give_it_time(pod: Pod) -> None:
    container = pod.container
    (port, *_others) = [port["containerPort"] for port in container["ports"]]
    is_zookeeper = pod.role == "zookeeper"
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container[name]
        if "exec" not in probe:
            continue
        program, *arguments = probe["exec"]["command"]
        assert program == "lockgate"
        context = _parse(arguments)
        assert context.info_name == "health"
        assert context.params["address"] == f"127.0.0.1:{port}"
        assert context.params["is_zookeeper"] == is_zookeeper
        assert not context.params["is_leader"], "a standby is ready, too"
        is_asked_for_life = pod.role == "taskmanager" and name != "readinessProbe"
        assert context.params["is_alive"] == is_asked_for_life, "it is restarted for want of a leader, or ready without"
        assert context.params["timeout_s"] + 2 < probe["timeoutSeconds"], "the command needs time to start"
    assert "exec" in container["readinessProbe"]


@pytest.mark.parametrize("pod", pods("zookeeper"), ids=_name)
def test_a_zookeeper_server_without_a_quorum_is_not_killed(pod: Pod) -> None:
    for name in ("startupProbe", "livenessProbe"):
        assert pod.container[name]["tcpSocket"] == {"port": "client"}


def test_variables_of_the_service_links_would_be_refused_so_they_are_off() -> None:
    with pytest.raises(SettingsError, match="LOCKGATE_PORT"):
        load_settings(environment={"LOCKGATE_PORT": "tcp://10.0.0.1:7070"})
    assert all(pod.spec["enableServiceLinks"] is False for pod in [*pods(), client()])


def test_the_client_finds_the_coordinators_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in client().variables().items():
        monkeypatch.setenv(name, value)
    target = find_cluster()
    assert target.coordinators == tuple(f"{pod.domain}:{_port(pod, 'api')}" for pod in pods("coordinator"))
    assert target.zookeeper == ""
    assert target.credentials.tls == TlsFiles(authority="/tls/ca.crt")
    assert target.coordinators == _settings_of_the_cluster().cluster.coordinators
    (volume,) = [mount["secret"] for path, mount in client().mounts().items() if path == "/tls"]
    assert volume["items"] == [{"key": "ca.crt", "path": "ca.crt"}], "a client has no business with the servers' key"


def test_variables_are_expanded_as_kubelet_does() -> None:
    assert expand("$(A).$(B)", {"A": "x"}) == "x.$(B)"
    assert all("$(" not in text for pod in pods() for text in [*pod.variables().values(), *pod.arguments()])
