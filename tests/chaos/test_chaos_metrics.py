"""A real Prometheus scrapes every process of the cluster, with the alert rules, while the leader dies."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_common import ports
from lockgate_common.json_input import parse_json
from lockgate_coordinator.runtime import metric_families as of_coordinators
from lockgate_taskmanager.runtime import metric_families as of_task_managers

from tests.chaos.testing_cluster import TestingCluster
from tests.http_client import ask
from tests.prometheus import Page, complaints, program

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

RULES = Path(__file__).resolve().parents[2] / "docker/monitoring/alerts.yaml"
FAMILIES = {family.name for family in (*of_coordinators.FAMILIES, *of_task_managers.FAMILIES)}
NOT_HERE = {
    "lockgate_certificate_not_after_timestamp_seconds",  # no TLS
    "lockgate_subtask_watermark_timestamp_seconds",  # no event time
    "lockgate_subtask_backlog_bytes",  # the generator knows its backlog in records
    "lockgate_subtask_backlog_splits",
    "lockgate_traces_total",  # none are sent
    "lockgate_job_standby_copies",  # no job asks for them
}


class Prometheus:
    """A server with a target for each process, scraped each second. Targets are read from a file."""

    def __init__(self, folder: Path) -> None:
        self._targets = folder / "targets.json"
        self.follow({})
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {
                    "job_name": "lockgate",
                    "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "1s"}],
                }
            ],
        }
        file = folder / "prometheus.json"  # JSON is YAML
        file.write_text(json.dumps(configuration), encoding="utf-8")
        self._address = f"127.0.0.1:{ports.choose('127.0.0.1', 1)[0]}"
        command = [
            program("prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def follow(self, targets: dict[str, str]) -> None:
        """Scrapes these from now on: address by name."""
        found = [{"targets": [address], "labels": {"process": name}} for name, address in targets.items()]
        fresh = self._targets.with_suffix(".new")
        fresh.write_text(json.dumps(found), encoding="utf-8")
        fresh.replace(self._targets)

    def ask(self, expression: str) -> dict[str, float]:
        """The value by process, or by job key, or "" for one without these labels; nothing while it starts."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/query?{query}", timeout=60) as answer:
                found = parse_json(answer.read())["data"]["result"]
        except urllib.error.URLError:
            return {}
        return {
            item["metric"].get("process") or item["metric"].get("job_key", ""): float(item["value"][1])
            for item in found
        }

    def alerts(self) -> set[str]:
        """Names of alerts that wait or fire."""
        with urllib.request.urlopen(f"http://{self._address}/api/v1/alerts", timeout=60) as answer:
            return {alert["labels"]["alertname"] for alert in parse_json(answer.read())["data"]["alerts"]}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    with contextlib.closing(Prometheus(tmp_path)) as found:
        yield found


def _bodies(testing: TestingCluster) -> dict[str, bytes]:
    return {name: ask(address, "/metrics").body for name, address in testing.cluster.metrics.items()}


def test_prometheus_sees_every_process_and_a_takeover(testing: TestingCluster, prometheus: Prometheus) -> None:
    prometheus.follow(testing.cluster.metrics)
    everybody = {"coordinator-0", "coordinator-1", "taskmanager-0", "taskmanager-1"}
    testing.wait_until(lambda: prometheus.ask("up == 1").keys() == everybody, "every process is scraped")
    with testing.ledger() as job:
        job.wait_checkpoints(3)
        testing.wait_until(
            lambda: bool(prometheus.ask("rate(lockgate_operator_records_in_total[10s]) > 0")), "records are counted"
        )
        testing.wait_until(lambda: "Lockgate" not in "".join(prometheus.alerts()), "no alert is about to fire")
        before = testing.leader_number()
        testing.wait_until(
            lambda: prometheus.ask("lockgate_coordinator_is_leader == 1").keys() == {f"coordinator-{before}"},
            "the leader is seen",
        )
        testing.kill_leader()
        job.wait_attempt(2)
        testing.cluster.wait_ready("coordinator", before)
        prometheus.follow(testing.cluster.metrics)  # a process has another port after each start
        new = f"coordinator-{1 - before}"
        testing.wait_until(
            lambda: prometheus.ask("lockgate_coordinator_is_leader == 1").keys() == {new}, "the other one leads"
        )
        testing.wait_until(
            lambda: prometheus.ask("lockgate_leadership_grants_total >= 1").keys() == {new}, "its grant is counted"
        )
        job.check_exact()


def test_pages_match_promtool_and_the_list_of_metrics(testing: TestingCluster) -> None:
    with testing.ledger() as job:
        job.wait_checkpoints(3)
        bodies = _bodies(testing)
        assert {name: text for name, body in bodies.items() if (text := complaints(body))} == {}
        shown = set().union(*(Page(body).own_names for body in bodies.values()))
        assert shown <= FAMILIES
        assert FAMILIES - shown <= NOT_HERE
        leader = Page(bodies[f"coordinator-{testing.leader_number()}"])
        assert leader.get("lockgate_job_state", job_key=job.key, state="RUNNING") == 1
        assert leader.get("lockgate_metrics_incomplete") == 0
        job.check_exact()
