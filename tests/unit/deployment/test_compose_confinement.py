"""docker/compose.yaml: no service may do more than it has to."""

from __future__ import annotations

import re

import pytest

from tests.unit.deployment.manifests import ROOT, Document, parse

(COMPOSE,) = parse((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Document] = COMPOSE["services"]
SETTINGS_FOR = {"spark-credentials": "spark-master"}
"""Whose settings a service writes."""


def _places(name: str) -> set[str]:
    """Where a service finds something mounted."""
    places = {item.partition(":")[0] for item in SERVICES[name]["tmpfs"]}
    for item in SERVICES[name].get("volumes", ()):
        source, _, rest = item.rpartition("}:")[2].partition(":")  # ${VARIABLE:-name}:/place
        places.add(source if source.startswith("/") else rest.partition(":")[0])
    return places


def test_every_process_has_a_service() -> None:
    assert {"coordinator-1", "taskmanager", "zookeeper-1", "spark-master", "spark-worker-1", "client"} <= set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    opened = {"privileged", "devices", "network_mode", "pid", "ipc", "userns_mode"} & set(service)
    assert not opened, f"{name} shares with the host: {opened}"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_runs_as_the_user_of_the_image(name: str) -> None:
    (user,) = re.findall(r"^USER (\S+)$", (ROOT / "docker/Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert SERVICES[name]["user"] == user


@pytest.mark.parametrize("name", SERVICES)
def test_services_write_only_to_volumes_or_memory(name: str) -> None:
    places = _places(name)
    assert {"/tmp", "/run/lockgate"} <= places
    assert "docker.sock" not in str(SERVICES[name])
    known = places | _places(SETTINGS_FOR.get(name, name))
    for folder in re.findall(r"(?<=[ =])(/(?:etc|var|tmp|run|home)/[\w/-]+)", str(SERVICES[name].get("command", ""))):
        assert any(folder.startswith(place) for place in known), f"{name} names {folder}, which nothing is mounted on"
