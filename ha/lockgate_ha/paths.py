"""The paths of all nodes in ZooKeeper: `/lockgate/<cluster>/...`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

ROOT = "/lockgate"


def node_name(text: str) -> str:
    """Any text as the name of one node, reversible with `text_of`. Raises ValueError when it is empty."""
    if not text:
        raise ValueError("a job key or cluster name must not be empty")
    name = quote(text, safe="")
    return name.replace(".", "%2E") if name in (".", "..") else name


def text_of(name: str) -> str:
    """The text whose `node_name` is `name`."""
    return unquote(name)


@dataclass(frozen=True, slots=True)
class Paths:
    """The nodes of one cluster."""

    cluster: str

    @property
    def base(self) -> str:
        """The root of the cluster's nodes."""
        return f"{ROOT}/{node_name(self.cluster)}"

    @property
    def epoch(self) -> str:
        """The current FencingToken as decimal text."""
        return f"{self.base}/epoch"

    @property
    def contenders(self) -> str:
        """One ephemeral sequential node per running coordinator."""
        return f"{self.base}/contenders"

    @property
    def leader(self) -> str:
        """The ephemeral LeaderRecord of the holder."""
        return f"{self.base}/leader"

    @property
    def challenge(self) -> str:
        """Ephemeral: created by a standby that suspects the leader, which deletes it to prove that it is alive."""
        return f"{self.base}/challenge"

    @property
    def leaders(self) -> str:
        """LeaderHistory; exists once a leader has recovered its jobs."""
        return f"{self.base}/leaders"

    @property
    def jobs(self) -> str:
        """One node per job that is not cleaned up."""
        return f"{self.base}/jobs"

    @property
    def results(self) -> str:
        """One node per job that has ended."""
        return f"{self.base}/results"

    def job(self, key: str) -> str:
        """The parent of a job's records."""
        return f"{self.jobs}/{node_name(key)}"

    def graph(self, key: str) -> str:
        """JobRecord."""
        return f"{self.job(key)}/graph"

    def attempt(self, key: str) -> str:
        """AttemptRecord."""
        return f"{self.job(key)}/attempt"

    def orders(self, key: str) -> str:
        """JobOrders; exists from the first order on."""
        return f"{self.job(key)}/orders"

    def recovery(self, key: str) -> str:
        """RecoveryRecord; exists while a leader recovers the job, and after a recovery that did not complete."""
        return f"{self.job(key)}/recovery"

    def checkpoint_id(self, key: str) -> str:
        """The highest reserved checkpoint id, decimal text."""
        return f"{self.job(key)}/checkpoint-id"

    def checkpoints(self, key: str) -> str:
        """The parent of the job's CompletedCheckpoint records."""
        return f"{self.job(key)}/checkpoints"

    def checkpoint(self, key: str, checkpoint_id: int) -> str:
        """CompletedCheckpoint."""
        return f"{self.checkpoints(key)}/{checkpoint_id}"

    def result(self, key: str) -> str:
        """JobResult."""
        return f"{self.results}/{node_name(key)}"
