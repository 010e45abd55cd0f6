"""docker/compose.yaml: everything reaches ZooKeeper with TLS, by names that its certificates have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from lockgate_common.tls import TlsFiles
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.zookeeper import connect

from lockgate.settings import load_settings
from tests.unit.deployment.manifests import ROOT, Document, parse

(COMPOSE,) = parse((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Document] = COMPOSE["services"]
SERVERS = {name: service for name, service in SERVICES.items() if name.startswith("zookeeper-")}
PEERS = [*SERVERS, "coordinator-1", "coordinator-2", "coordinator-3", "taskmanager", "client"]


@pytest.mark.parametrize("name", PEERS)
def test_a_service_has_tls_and_its_files(name: str) -> None:
    service = SERVICES[name]
    given = {key: value for key, value in service["environment"].items() if value and "${" not in value}
    folder = given.pop("CREDENTIALS_FOLDER")
    settings = load_settings(environment=given)
    own = TlsFiles("/run/lockgate/host.pem", "/run/lockgate/host.key", f"{folder}/ca.pem")
    assert settings.zookeeper_tls() == own
    assert f"credentials:{folder}:ro" in service["volumes"]


@pytest.mark.parametrize("name", [name for name in PEERS if not name.startswith("zookeeper-") and name != "client"])
def test_a_container_waits_for_an_ensemble_that_starts_instead_of_ending(name: str) -> None:
    given = {key: value for key, value in SERVICES[name]["environment"].items() if value and "${" not in value}
    given.pop("CREDENTIALS_FOLDER")
    assert load_settings(environment=given).zookeeper.connect_timeout_ms >= 300_000


def test_servers_are_named_as_their_certificates_name_them_and_not_published() -> None:
    hosts = SERVICES["client"]["environment"]["LOCKGATE_ZOOKEEPER"].split(",")
    assert [f"{service['hostname']}:2181" for service in SERVERS.values()] == hosts
    assert not [name for name, service in SERVERS.items() if "ports" in service]


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl on this machine, which the image has")
def test_the_certificates_of_containers_serve_and_the_health_check_asks_with_them(tmp_path: Path) -> None:
    credentials, own = tmp_path / "credentials", tmp_path / "own"
    for command in (["lockgate-credentials", credentials], ["lockgate-certificate", credentials, own]):
        subprocess.run(["sh", ROOT / "docker/bin" / command[0], *command[1:]], check=True, capture_output=True)
    tls = TlsFiles(str(own / "host.pem"), str(own / "host.key"), str(credentials / "ca.pem"))
    server = ZooKeeperServer(tmp_path / "data", tls=tls)
    program, *words, script = SERVERS["zookeeper-1"]["healthcheck"]["test"][1:]
    for there, here in ((":2181", f":{server.port}"), ("/etc/lockgate", credentials), ("/run/lockgate", own)):
        assert there in script
        script = script.replace(there, str(here))
    assert subprocess.run([program, *words, script], check=False, timeout=60).returncode != 0
    server.start()
    try:
        assert subprocess.run([program, *words, script], check=False, timeout=60).returncode == 0
        connect(server.address, tls=tls).close()
    finally:
        server.stop()
