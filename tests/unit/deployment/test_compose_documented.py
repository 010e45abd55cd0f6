"""docs/containers.md: what it gives to type and to save fits docker/compose.yaml."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from lockgate.cli import run
from lockgate.settings import load_settings
from tests.unit.deployment.manifests import ROOT, Document, block, parse

PAGE = (ROOT / "docs/containers.md").read_text(encoding="utf-8")
(COMPOSE,) = parse((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Document] = COMPOSE["services"]
SERVERS = ("coordinator-1", "coordinator-2", "coordinator-3", "taskmanager")


def _override() -> Document:
    """The documented `compose.override.yaml`."""
    (found,) = parse(block(PAGE, "yaml", "services:"))
    return found


def _environment(service: Document) -> dict[str, str]:
    given = {key: value for key, value in service.get("environment", {}).items() if value and "${" not in value}
    given.pop("CREDENTIALS_FOLDER", None)
    return given


def _volumes(name: str) -> dict[str, str]:
    """Place: the named volume there, with `:ro` where it is read-only."""
    items = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", item).split(":") for item in SERVICES[name]["volumes"] if ":" in item]
    return {place: ":".join((volume, *mode)) for volume, place, *mode in items}


def test_tokens_are_made_by_a_service_that_may_write_where_the_others_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (typed, *_more) = re.findall(r"^docker compose run --rm -T (\S+ lockgate tokens create .*?) >", PAGE, re.M)
    service, program, *arguments = shlex.split(typed)
    made_at = load_settings(environment=_environment(SERVICES[service])).tokens_path
    assert _volumes(service)[str(made_at.parent)] == "credentials"
    for name in SERVERS:
        assert load_settings(environment=_environment(SERVICES[name])).tokens_path == made_at
        assert _volumes(name)[str(made_at.parent)] == "credentials:ro"
    assert program == "lockgate"
    monkeypatch.setenv("LOCKGATE_SECRET_FILE", str(tmp_path / "secret"))
    assert run(arguments) == 0
    assert capsys.readouterr().out.strip()
    assert (tmp_path / made_at.name).is_file()


def test_the_override_opens_what_the_page_says() -> None:
    override = _override()
    assert override["version"] == COMPOSE["version"], "docker-compose 1.29 refuses to merge others"
    assert set(override["services"]) == set(SERVERS)
    published: list[str] = []
    for name, change in override["services"].items():
        settings = load_settings(environment=_environment(SERVICES[name]) | change["environment"])
        if name == "taskmanager":
            assert settings.taskmanager.metrics == "0.0.0.0:9102"
            continue
        assert settings.coordinator.metrics == "0.0.0.0:9101"
        (port,) = change["ports"]
        host, number, inside = port.split(":")
        assert (host, f"0.0.0.0:{inside}") == ("127.0.0.1", settings.coordinator.dashboard)
        published.append(number)
    taken = [re.search(r"-(\d+)}", port) for name in SERVERS for port in SERVICES[name].get("ports", [])]
    assert len({*published, *(found[1] for found in taken if found)}) == 2 * len(published)


def test_scrapers_are_given_the_ports_of_the_override() -> None:
    config: Any = parse(block(PAGE, "yaml", "scrape_configs"))[0]["scrape_configs"][0]
    ((targets,), (found,)) = [list(item["targets"]) for item in config["static_configs"]], config["dns_sd_configs"]
    services = _override()["services"]
    ports = [
        name + services[name]["environment"]["LOCKGATE_COORDINATOR_METRICS"].removeprefix("0.0.0.0")
        for name in SERVERS[:3]
    ]
    assert targets == ports
    (name,) = found["names"]
    assert services[name]["environment"]["LOCKGATE_TASKMANAGER_METRICS"] == f"0.0.0.0:{found['port']}"


@pytest.mark.parametrize("name", SERVERS)
def test_the_first_job_writes_into_the_volume_that_all_share(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", str(ROOT / "examples/first_job.py"), "--dry-run"]) == 0
    graph = json.loads(capsys.readouterr().out)
    (sink,) = [operator["file_sink"] for operator in graph["vertices"][0]["operators"] if "file_sink" in operator]
    (volume,) = [volume for place, volume in _volumes(name).items() if Path(place) in Path(sink["path"]).parents]
    assert volume == "shared"
    assert sink["path"] in PAGE
