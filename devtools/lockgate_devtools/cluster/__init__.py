"""A whole cluster on one machine, as real processes: for experiments, the demo, the drill and tests."""

from lockgate_devtools.cluster.cluster import LocalCluster
from lockgate_devtools.cluster.errors import ClusterError
from lockgate_devtools.cluster.foreground import run_cluster
from lockgate_devtools.cluster.options import ClusterOptions

__all__ = ["ClusterError", "ClusterOptions", "LocalCluster", "run_cluster"]
