"""`lockgate status`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import click
from lockgate_proto.messages import ClusterStatus, JobStatus

from lockgate.commands.options import connect, json_option, target_options


@click.command()
@json_option
@target_options
def status(as_json: bool, **target: str | None) -> None:
    """Show the cluster: coordinators and the leader, task managers with their slots, jobs by state.

    \b
    Examples:
      lockgate status
      lockgate status --json | jq '[.task_managers[].free_slots] | add'
    """
    from lockgate.shapes import status_json

    with connect(target) as client:
        cluster, jobs = client.cluster(), client.jobs()
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
        jobs_line(jobs),
    ]
    if len(coordinators) == 1:
        parts.append("There is no standby: when the leader dies, jobs wait until it is started again.")
    if not cluster.task_managers:
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
