"""A whole cluster on one machine, as real processes: for trying things out, the demo, the drill and tests."""

from lockgate.local.cluster import LocalCluster
from lockgate.local.errors import ClusterError
from lockgate.local.foreground import run_cluster
from lockgate.local.options import ClusterOptions

__all__ = ["ClusterError", "ClusterOptions", "LocalCluster", "run_cluster"]
