"""`lockgate status`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import click
from lockgate_common.printable import printable
from lockgate_proto.messages import ClusterStatus, JobStatus

from lockgate.commands.options import asking, json_option, target_options


@click.command()
@json_option
@target_options
def status(as_json: bool, **target: str | None) -> None:
    """Show the cluster: coordinators and the leader, task managers with their slots, jobs by state, and trouble with
    ZooKeeper or the storage.

    \b
    Examples:
      lockgate status
      lockgate status --json | jq '[.task_managers[].free_slots] | add'
    """
    from lockgate.json_shapes import status_json

    with asking(target, "asking the cluster for its status") as client:
        cluster, jobs = client.cluster(), client.jobs(with_subtasks=False)
    click.echo(json.dumps(status_json(cluster, jobs), indent=2) if as_json else status_text(cluster, jobs))


def status_text(cluster: ClusterStatus, jobs: Sequence[JobStatus]) -> str:
    """`lockgate status`."""
    from lockgate.commands.views import table

    coordinators = [
        (
            coordinator.coordinator_id,
            coordinator.address,
            str(coordinator.pid),
            "leader" if coordinator.leader else "standby",
        )
        for coordinator in cluster.coordinators
    ]
    parts = [
        table(("COORDINATOR", "ADDRESS", "PID", "ROLE"), coordinators, right=(2,)),
        task_manager_table(cluster),
        "\n".join((jobs_line(jobs), zookeeper_line(cluster), storage_line(jobs))),
    ]
    if len(coordinators) == 1:
        parts.append("There is no standby: when the leader dies, jobs wait until it is started again.")
    if cluster.leader_silent:
        parts.append("The coordinator that answered could not ask the leader: its task managers are not known.")
    elif not cluster.task_managers:
        parts.append("There is no task manager: jobs wait for slots.")
    return "\n\n".join(parts)


def task_manager_table(cluster: ClusterStatus) -> str:
    """The task managers and their slots."""
    from lockgate.commands.views import table

    rows = [
        (found.task_manager_id, found.address, str(found.pid), str(found.slots), str(found.free_slots))
        for found in cluster.task_managers
    ]
    return table(("TASK MANAGER", "ADDRESS", "PID", "SLOTS", "FREE"), rows, right=(2, 3, 4))


def jobs_line(jobs: Sequence[JobStatus]) -> str:
    """How many jobs are in each state."""
    states = sorted(Counter(job.state.name for job in jobs).items())
    return "jobs: " + (", ".join(f"{count} {state}" for state, count in states) or "none")


def zookeeper_line(cluster: ClusterStatus) -> str:
    """Whether the leader reaches ZooKeeper, and what that means for jobs if it does not."""
    if cluster.leader is None:
        return "zookeeper: there is no leader to report on it"
    if cluster.leader_silent:
        return "zookeeper: not known, the leader did not answer"
    if not cluster.zookeeper_trouble:
        return "zookeeper: the leader reports no trouble"
    return printable(
        f"zookeeper: not reachable from the leader ({cluster.zookeeper_trouble}); tasks run on, but no checkpoint "
        "completes and no job is accepted"
    )


def storage_line(jobs: Sequence[JobStatus]) -> str:
    """Which jobs cannot store or read their snapshots now, and why the first of them cannot."""
    from lockgate.commands.views import first_line

    found = [(job.job_key, job.storage_trouble) for job in jobs if job.storage_trouble is not None]
    if not found:
        return "storage: no job reports trouble"
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return printable(f"storage: failing for {found[0][0]}{more}: {first_line(found[0][1].reason)}")
