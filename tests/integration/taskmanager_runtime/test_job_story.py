"""A job's story over real gRPC: a coordinator, two task managers without Spark, and the command that asks for it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lockgate_common.security import Credentials
from lockgate_coordinator.runtime import task_managers
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointOptions,
    GeneratorSource,
    JobGraph,
    JobState,
    JobStatus,
    KeyedAggregate,
    Operator,
)
from lockgate_taskmanager.runtime.task_manager import TaskManager

from lockgate.cli import run
from lockgate.client import Client
from tests.integration.taskmanager_runtime.fake_programs import World, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import until
from tests.parsed_story import parsed_story

pytestmark = pytest.mark.integration

NewTaskManager = Callable[..., TaskManager]
WAIT_MS = 120_000


@pytest.fixture
def leader(credentials: Credentials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    monkeypatch.setattr(task_managers, "GRACE_MS", 0)  # a broken stream is enough: the port is in this very process
    settings = CoordinatorSettings(
        "embedded",
        str(tmp_path / "storage"),
        bind="127.0.0.1:0",
        credentials=credentials,
        heartbeat_timeout_ms=WAIT_MS,
        coordinator_id="coordinator-0",
    )
    coordinator = Coordinator(settings, EmbeddedZooKeeper().connector())
    coordinator.start()
    coordinator.dispatcher.wait_leading(WAIT_MS / 1000).results_known.result(WAIT_MS / 1000)
    yield coordinator
    coordinator.stop()


@pytest.fixture
def client(leader: Coordinator, credentials: Credentials) -> Iterator[Client]:
    with Client([leader.address], credentials=credentials, patience_ms=WAIT_MS) as made:
        yield made


@pytest.fixture
def target(leader: Coordinator, credentials: Credentials, tmp_path: Path) -> tuple[str, ...]:
    """Options of the command."""
    secret = tmp_path / "secret"
    secret.write_text(credentials.secret)
    secret.chmod(0o600)
    return ("--cluster", leader.address, "--secret-file", str(secret))


def _graph(interval_ms: int) -> JobGraph:
    """The word count, as a coordinator admits it."""
    graph = word_count_graph()
    words, count = graph.vertices
    summing = KeyedAggregate(("word",), (Aggregate("n", AggregateFunction.COUNT),))
    words = dataclasses.replace(words, operators=(Operator("read", kind=GeneratorSource(rows_per_partition=100)),))
    count = dataclasses.replace(count, operators=(Operator("sum", kind=summing), count.operators[1]))
    return dataclasses.replace(graph, vertices=(words, count), checkpoints=CheckpointOptions(interval_ms))


def _until(client: Client, wanted: Callable[[JobStatus], bool]) -> None:
    with contextlib.closing(client.watch("job")) as watch:
        while True:
            update = watch.poll(WAIT_MS)
            assert update is not None, client.job("job")
            if isinstance(update, JobStatus) and wanted(update):
                return


@pytest.fixture
def managers(client: Client, new_task_manager: NewTaskManager, world: World) -> list[TaskManager]:
    """Three with a slot each, of which the job needs two."""
    world.limit = 50  # then the sources wait: the job has no end
    here = client.leader()
    made = [new_task_manager(f"tm-{number}", slots=1) for number in range(3)]
    for manager in made:
        manager.on_leader(here)
    until(lambda: len(client.cluster().task_managers) == len(made), "the registration of the task managers")
    return made


@pytest.mark.usefixtures("managers")
def test_a_checkpoint_is_followed_to_its_trigger_and_a_cancel_to_the_client(
    client: Client, target: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    client.submit("job", _graph(interval_ms=100))
    _until(client, lambda status: status.checkpoints_completed >= 2)
    story = parsed_story("job", capsys, *target)
    story.check_order()
    story.check_checkpoint()
    assert not any("grant" in remark for remark in story.remarks), "this leader has the job from its submission on"
    first = story.lines[0]
    assert (first["cause_id"], first["process"]) == ("client", "coordinator-0")
    client.cancel("job")
    _until(client, lambda status: status.state is JobState.CANCELED)
    ended = parsed_story("job", capsys, *target)
    cancelled = ended.containing("it is cancelled")
    assert cancelled
    for line in cancelled:
        chain = ended.chain(line)
        assert (chain[-1]["event"], chain[-1]["cause_id"]) == ("a client cancels the job", "client")
    assert run(["job", "job", "--story", *target]) == 0
    assert "a client cancels the job" in capsys.readouterr().out


def test_a_restart_is_followed_to_the_task_manager_that_was_lost(
    client: Client, target: tuple[str, ...], managers: list[TaskManager], capsys: pytest.CaptureFixture[str]
) -> None:
    client.submit("job", _graph(interval_ms=3_600_000))
    _until(client, lambda status: status.state is JobState.RUNNING)
    used = {line["process"] for line in parsed_story("job", capsys, *target).containing("is deployed")}
    lost = next(manager for manager in managers if manager.id in used)
    lost._control.leave = lambda: None  # type: ignore[method-assign]  # as if its process was killed
    lost.stop()
    _until(client, lambda status: status.attempt == 2 and status.state is JobState.RUNNING)
    story = parsed_story("job", capsys, *target)
    story.check_order()
    story.check_restart(2)


def test_there_is_no_story_of_an_unknown_job(target: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "unknown", "--story", *target]) == 2
    assert "unknown" in capsys.readouterr().err
