"""The profile `spark` of the compose file: task managers whose Spark work is done by a standalone master's workers.

The same project as in the other tests of this folder, changed as a user changes it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from lockgate_devtools.equipment.engine import docker

from tests.docker.fleet import Container, Fleet

pytestmark = [pytest.mark.docker, pytest.mark.rotating, pytest.mark.timeout(1200)]

MASTER = "spark://spark-master:7077"
SERVERS = ("spark-master", "spark-worker-1", "spark-worker-2")
WORKERS = SERVERS[1:]
DRIVERS = 2  # task managers; three with their executors are more than two cores start in good time
VARIABLES = {
    "LOCKGATE_TASKMANAGER_SPARK_MASTER": MASTER,
    "LOCKGATE_TASKMANAGER_SPARK_OPTIONS": json.dumps(
        {
            "spark.executor.memory": "512m",
            # A task manager without an executor ends after its 60 s: on a busy machine that is a start too early.
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        }
    ),
}
START_S = 600.0  # a bound: a minute on an idle machine, for JVMs of a master, workers, drivers and their executors
LOGS = ["docker", "logs", "--tail", "15"]
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
CONNECT_SERVER = [
    "spark-submit",
    *("--master", "local[2]", "--conf", "spark.connect.grpc.binding.address=0.0.0.0"),
    *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
]
UNPROTECTED = f"error: there is no secret for the Spark master {MASTER}, so anyone who reaches this driver"
REFUSED = f"error: the server at {MASTER} did not accept the application; is it a Spark master with the same secret?"


@pytest.fixture(scope="module")
def spark(fleet: Fleet) -> Iterator[Fleet]:
    """The cluster with Spark behind it, everything healthy."""
    fleet.heal()
    os.environ.update(VARIABLES)
    try:
        fleet.compose(f"--profile spark up -d --scale taskmanager={DRIVERS}")
        await_ready(fleet)
        yield fleet
    finally:
        for name in VARIABLES:
            del os.environ[name]
        # The task managers are left as they are: another test, if there is one, finds too few of them and replaces all.
        fleet.compose(f"--profile spark rm --stop --force spark-credentials {' '.join(SERVERS)}")


def await_ready(fleet: Fleet) -> None:
    """Waits for everything; when that is in vain, fails with what the task managers said last."""
    served = (*SERVERS, "taskmanager")

    def is_ready() -> bool:
        return all(container.health == "healthy" for container in fleet.of(*served)) and registered(fleet) == managers(
            fleet
        )

    try:
        fleet.wait_until(is_ready, "Spark's servers and the task managers are healthy and registered", START_S)
    except AssertionError as error:
        logs = [
            subprocess.run([*LOGS, container.id], capture_output=True, text=True, check=False)
            for container in fleet.of("taskmanager")
        ]
        raise AssertionError("\n".join([str(error), *[log.stderr for log in logs]])) from error


def managers(fleet: Fleet) -> set[str]:
    """The ids of the task managers that run."""
    return {f"tm-{container.id[:12]}" for container in fleet.of("taskmanager") if container.is_running}


def registered(fleet: Fleet) -> set[str]:
    """The ids of those that the leader knows."""
    return {task_manager.task_manager_id for task_manager in fleet.client.cluster().task_managers}


def get(container: Container, url: str) -> Any:
    """What a page of JSON says inside a container."""
    return json.loads(docker("exec", container.id, "python3", "-c", GET, url))


def page(driver: Container, name: str) -> Any:
    """A page of a task manager's Spark, by its REST interface."""
    applications = "http://127.0.0.1:4040/api/v1/applications"
    (application,) = get(driver, applications)
    return get(driver, f"{applications}/{application['id']}/{name}")


def test_a_job_with_a_leader_killed_in_the_middle_is_exact_and_runs_on_the_workers(spark: Fleet) -> None:
    with spark.ledger() as job:
        job.wait_checkpoints(2)
        victim = spark.leader()
        spark.kill(victim)
        job.wait_attempt(2)
        assert spark.leader_name() != victim.service
        assert job.check_exact().restarts == 1
    spark.start(victim)
    applications = get(spark.one("spark-master"), "http://127.0.0.1:8080/json/")["activeapps"]
    assert {application["name"] for application in applications} == {f"lockgate {name}" for name in managers(spark)}
    names: set[str] = set()
    for driver in spark.of("taskmanager"):
        executors = page(driver, "executors")
        tasks = {executor["id"]: executor["totalTasks"] for executor in executors}
        assert tasks.pop("driver") == 0
        assert sum(tasks.values()) > 0
        hosts = {executor["hostPort"].partition(":")[0] for executor in executors if executor["id"] != "driver"}
        assert hosts <= set(WORKERS)
        names |= {job.get("description", "") for job in page(driver, "jobs")}
    of_the_job = {name for name in names if name.startswith(f"{job.key} ")}
    form = re.compile(rf"{job.key} \S+\[[01]\] attempt ([12]), (before the first checkpoint|after checkpoint \d+)")
    found = [form.fullmatch(name) for name in of_the_job]
    assert all(found), of_the_job
    assert {item[1] for item in found if item} == {"1", "2"}, "both attempts are named"
    assert {f"{job.key} generate[0] attempt 1, before the first checkpoint"} <= of_the_job


def test_a_worker_that_is_killed_costs_no_record(spark: Fleet) -> None:
    victim = spark.one(WORKERS[0])
    with spark.ledger() as job:
        job.wait_checkpoints(2)
        spark.kill(victim)
        job.wait_checkpoints(2)
        job.check_exact()
    spark.start(victim)
    spark.wait_until(lambda: spark.one(victim.service).health == "healthy", "the worker is back")


def test_a_driver_without_the_secret_is_refused(spark: Fleet) -> None:
    """In a task manager's container, with its settings, but without the properties file that holds the secret."""
    intruder = ["lockgate", "taskmanager", "--id", "tm-intruder", "--slots", "1", "--bind", "127.0.0.1:0"]
    for options, sentence in (([], UNPROTECTED), (["--spark-option", "spark.authenticate=false"], REFUSED)):
        inside = ["docker", "exec", spark.of("taskmanager")[0].id, "timeout", "240", *intruder, *options]
        done = subprocess.run(inside, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr[-2000:]
        assert any(line.startswith(sentence) for line in done.stderr.splitlines()), done.stderr[-2000:]
    assert "tm-intruder" not in registered(spark)


def test_the_entrance_without_a_secret_is_closed(spark: Fleet) -> None:
    inside = spark.of("taskmanager")[0]
    assert listens(inside, "spark-master", 7077)
    assert not listens(inside, "spark-master", 6066)


def test_a_connect_server_out_of_the_image_takes_a_task_manager_that_ends_with_it(spark: Fleet) -> None:
    host = spark.of("taskmanager")[0]
    (network,) = json.loads(docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", host.id))
    image = docker("inspect", "--format", "{{.Image}}", host.id).strip()
    server = docker("run", "--detach", "--network", network, image, *CONNECT_SERVER).strip()
    try:
        url = f"sc://{server[:12]}:15002"
        spark.wait_until(lambda: listens(host, server[:12], 15002), "the Connect server listens")
        options = ["-e", "LOCKGATE_TASKMANAGER_SPARK_OPTIONS={}"]
        manager = ["lockgate", "taskmanager", "--id", "tm-connect", "--slots", "1", "--spark-master", url]
        places = ["--bind", "0.0.0.0:7090", "--advertise", f"{host.id[:12]}:7090"]
        inside = ["docker", "exec", *options, host.id, *manager, *places]
        with subprocess.Popen(inside, stderr=subprocess.PIPE, text=True) as process:
            try:
                spark.wait_until(lambda: "tm-connect" in registered(spark), "it has registered")
            finally:
                docker("kill", server)  # which ends the process in any case
            _, log = process.communicate(timeout=START_S)
            assert process.returncode == 1
        assert f"the Spark Connect server {url} has not answered for 10 s; this task manager exits" in log
    finally:
        docker("rm", "--force", server)


def listens(container: Container, host: str, port: int) -> bool:
    """Whether a port is open, seen from inside a container."""
    inside = ["docker", "exec", container.id, "python3", "-c", REACH, host, str(port)]
    return subprocess.run(inside, capture_output=True, check=False).returncode == 0
