"""Two task managers in this process and a leader whose messages the test writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lockgate_common.security import Credentials
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.task_manager import TaskManager

from tests.integration.taskmanager_runtime.fake_programs import FakeFactory, World
from tests.integration.taskmanager_runtime.scripted_coordinator import ScriptedCoordinator


@pytest.fixture
def credentials() -> Credentials:
    return Credentials(secret="a secret of this test")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def new_coordinator(credentials: Credentials) -> Iterator[Callable[..., ScriptedCoordinator]]:
    made: list[ScriptedCoordinator] = []

    def make(token: int = 1, heartbeat_ms: int = 0) -> ScriptedCoordinator:
        made.append(ScriptedCoordinator(credentials, token, heartbeat_ms))
        return made[-1]

    yield make
    for scripted_coordinator in made:
        scripted_coordinator.die()


@pytest.fixture
def new_task_manager(credentials: Credentials, world: World, tmp_path: Path) -> Iterator[Callable[..., TaskManager]]:
    made: list[TaskManager] = []

    def make(name: str, **changes: object) -> TaskManager:
        values = {"zookeeper": "unused:1", "work_dir": str(tmp_path), "credentials": credentials} | changes
        settings = TaskManagerSettings(task_manager_id=name, **values)  # type: ignore[arg-type]
        manager = TaskManager(settings, FakeFactory(world))
        manager.start()
        made.append(manager)
        return manager

    yield make
    world.process_gate.set()
    world.persist_gate.set()
    for task_manager in made:
        task_manager.stop()
