"""Who is let into Spark: its driver and its block manager take part with their own secret only, and no UI is open.

With a master on this machine Spark makes the secret itself, in its memory. A standalone cluster needs one that master,
workers and task managers share. What may be secret among the settings reaches the JVM through PySpark's gateway, which
asks for a token of its own, and never on a command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockgate_common.masking import is_secret_name

from lockgate_taskmanager.spark.errors import EngineError
from lockgate_taskmanager.spark.master import masked

AUTHENTICATE = "spark.authenticate"
SECRET = "spark.authenticate.secret"
_SECRET_FILES = ("spark.authenticate.secret.file", "spark.authenticate.secret.driver.file")

# Unless the operator's configuration of Spark says otherwise: options, spark-defaults.conf, PYSPARK_SUBMIT_ARGS.
_DEFAULTS = {AUTHENTICATE: "true", "spark.ui.enabled": "false"}
_ENCRYPT = "spark.network.crypto.enabled"

SparkConf = Any  # pyspark.SparkConf


def configured(settings: Mapping[str, str]) -> SparkConf:
    """Starts the process's JVM and returns the configuration in it; raises what PySpark raises."""
    from pyspark import SparkConf, SparkContext

    public = SparkConf(loadDefaults=False)
    public.setAll([(name, value) for name, value in settings.items() if not is_secret_name(name)])
    SparkContext._ensure_initialized(conf=public)
    conf = SparkConf(_jvm=SparkContext._jvm)
    conf.setAll(list(settings.items()))
    for name, value in _DEFAULTS.items():
        conf.setIfMissing(name, value)
    conf.setIfMissing(_ENCRYPT, conf.get(AUTHENTICATE, "true"))  # Spark refuses the one without the other
    return conf


def require_secret(conf: SparkConf, master: str) -> None:
    """Raises EngineError if a cluster has no secret and no option declares that it needs none."""
    if not master.startswith("spark://") or conf.get(AUTHENTICATE) != "true":
        return
    if not any(conf.contains(name) for name in (SECRET, *_SECRET_FILES)):
        raise EngineError(
            f"there is no secret for the Spark master {masked(master)}, so anyone who reaches this driver could run"
            f" code in it: give master, workers and task managers the same {SECRET}, or set {AUTHENTICATE}=false where"
            " no one else reaches their network"
        )
