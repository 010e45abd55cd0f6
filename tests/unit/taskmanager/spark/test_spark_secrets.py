"""What reaches the JVM's command line, and clusters that everybody could join."""

from __future__ import annotations

import pytest
from lockgate_taskmanager.spark.access import configured, require_secret
from lockgate_taskmanager.spark.errors import EngineError
from pyspark import SparkConf, SparkContext

MASTER = "spark://m:7077"


def conf(**settings: str) -> SparkConf:
    """A configuration that no JVM knows."""
    return SparkConf(loadDefaults=False).setAll(
        [(f"spark.{name.replace('_', '.')}", value) for name, value in settings.items()]
    )


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a JVM would be started with."""
    found: dict[str, str] = {}
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: found.update(conf.getAll()))
    monkeypatch.setattr(SparkContext, "_jvm", None)
    return found


def test_no_secret_is_on_the_command_line_of_the_jvm(launched: dict[str, str]) -> None:
    secrets = {
        "spark.authenticate.secret": "a",
        "spark.hadoop.fs.s3a.secret.key": "b",
        "spark.hadoop.fs.s3a.access.key": "c",
        "spark.ssl.keyStorePassword": "d",
        "spark.connect.authenticate.token": "e",
    }
    known = configured({"spark.driver.memory": "2g", **secrets})
    assert launched == {"spark.driver.memory": "2g"}
    assert {name: known.get(name) for name in secrets} == secrets


def test_spark_is_closed_unless_its_own_configuration_says_otherwise(launched: dict[str, str]) -> None:
    known = configured({"spark.ui.enabled": "true"})
    assert known.get("spark.authenticate") == "true"
    assert known.get("spark.network.crypto.enabled") == "true"
    assert known.get("spark.ui.enabled") == "true"
    assert configured({}).get("spark.ui.enabled") == "false"
    assert not launched.get("spark.authenticate"), "a file of Spark's may say otherwise"


def test_without_authentication_encryption_is_off(launched: dict[str, str]) -> None:
    assert configured({"spark.authenticate": "false"}).get("spark.network.crypto.enabled") == "false"
    assert not launched.get("spark.network.crypto.enabled")


def test_a_cluster_without_a_secret_is_named() -> None:
    with pytest.raises(EngineError, match=r"no secret for the Spark master spark://m:7077.*spark.authenticate=false"):
        require_secret(conf(authenticate="true"), MASTER)


def test_a_cluster_with_a_secret_or_one_that_needs_none_is_used() -> None:
    require_secret(conf(authenticate="true", authenticate_secret="s"), MASTER)
    require_secret(conf(authenticate="true", authenticate_secret_file="/f"), MASTER)
    require_secret(conf(authenticate="false"), MASTER)


def test_spark_on_this_machine_makes_its_own() -> None:
    require_secret(conf(authenticate="true"), "local[2]")
