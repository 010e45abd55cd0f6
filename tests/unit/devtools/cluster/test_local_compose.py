"""The clusters in containers that tools start for themselves, as compose reads them; none is started here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lockgate_devtools.equipment.compose import ComposeCluster, own_settings

ROOT = Path(__file__).parents[4]
MASTER = "spark://somebody-elses:7077"
SETTINGS = {
    "LOCKGATE_TASKMANAGER_SPARK_MASTER": MASTER,
    "LOCKGATE_TASKMANAGER_SPARK_OPTIONS": '{"spark.executor.memory": "1m"}',
    "LOCKGATE_INPUT": "/somebody/elses/input",
    "LOCKGATE_LOG_LEVEL": "CRITICAL",
    "LOCKGATE_PORT_1": "1",
    "COMPOSE_PROFILES": "spark",
}


def test_only_the_image_of_a_users_settings_remains() -> None:
    environment = {**SETTINGS, "LOCKGATE_IMAGE": "mine:1", "PATH": "/bin", "DOCKER_HOST": "tcp://far:1"}
    assert own_settings(environment) == {"LOCKGATE_IMAGE": "mine:1", "PATH": "/bin", "DOCKER_HOST": "tcp://far:1"}


@pytest.mark.skipif(shutil.which("docker") is None, reason="compose is not installed")
@pytest.mark.parametrize("place", ["shell", "file"])
def test_settings_of_the_shell_or_the_env_file_do_not_reach_such_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    file = tmp_path / "compose.yaml"
    shutil.copy(ROOT / "docker" / "compose.yaml", file)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    if place == "shell":
        for name, value in SETTINGS.items():
            monkeypatch.setenv(name, value)
    else:
        (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    own = tmp_path / "input"
    own.mkdir()
    settings = {"target_batch_ms": 123}
    cluster = ComposeCluster(tmp_path / "kept", file, "never-started", task_manager=settings, input_folder=own)
    read = cluster.compose("config")
    for foreign in (MASTER, "spark.executor.memory", "/somebody/elses/input", "CRITICAL"):
        assert foreign not in read
    assert str(own) in read
    assert "LOCKGATE_TASKMANAGER_TARGET_BATCH_MS: '123'" in read.replace('"', "'")
