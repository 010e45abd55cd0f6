"""What the JSON API answers to those who may read. Functions of a request that block and raise ClientError."""

from __future__ import annotations

from typing import Any

from lockgate.json_shapes import Json, checkpoint_json, job_json, outcome_json, story_json, summary_json
from lockgate_web.asked import Asked
from lockgate_web.live import cluster_json, graph_json, overview_json, reads_json, snapshots_json, subtasks_json


class Reads:
    """name, zookeeper: of the cluster, for display."""

    def __init__(self, name: str, zookeeper: str) -> None:
        self._name, self._zookeeper = name, zookeeper

    def cluster(self, asked: Asked) -> Json:
        """The processes."""
        return cluster_json(self._name, self._zookeeper, *asked.held.overview())

    def overview(self, asked: Asked) -> Json:
        """The processes and the jobs."""
        cluster, jobs = asked.held.overview()
        shown = cluster_json(self._name, self._zookeeper, cluster, jobs)
        return {"cluster": shown, "jobs": [overview_json(job) for job in jobs]}


def jobs(asked: Asked) -> Any:
    """As `lockgate jobs --json`."""
    found = sorted(asked.held.client.jobs(with_subtasks=False), key=lambda job: job.submitted_unix_ms, reverse=True)
    return [summary_json(job) for job in found]


def job(asked: Asked) -> Json:
    """As `lockgate job KEY --json`."""
    return job_json(asked.held.client.job(asked.key))


def graph(asked: Asked) -> Json:
    """The drawn part of the job."""
    return graph_json(asked.held.client.job(asked.key))


def reads(asked: Asked) -> Json:
    """What the job had read, second by second."""
    return reads_json(asked.held.client.job(asked.key, with_reads=True))


def subtasks(asked: Asked) -> Json:
    """One page of them."""
    status = asked.held.client.job(asked.key)
    return subtasks_json(status, asked.query.get("vertex", ""), asked.number("offset"))


def checkpoints(asked: Asked) -> Any:
    """As `lockgate checkpoints KEY --json`."""
    return [checkpoint_json(found) for found in asked.held.client.checkpoints(asked.key)]


def checkpoint_history(asked: Asked) -> Any:
    """As `lockgate checkpoints KEY --history --json`."""
    return [outcome_json(found) for found in asked.held.client.checkpoint_history(asked.key)]


def checkpoint_parts(asked: Asked) -> Json:
    """One page of what the subtasks contributed to a checkpoint."""
    number = asked.id("checkpoint")
    parts = asked.held.client.checkpoint_parts(asked.key, number)
    return snapshots_json(number, parts, asked.query.get("vertex", ""), asked.number("offset"))


def story(asked: Asked) -> Json:
    """As `lockgate job KEY --story --json`."""
    return story_json(asked.held.client.story(asked.key))
