"""`python -m lockgate_devtools.demo.batch FOLDER FILE`: the same counts by a plain Spark batch job, written as Parquet.

A separate process, so that it shares only the input with the cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from lockgate.errors import UserError
from lockgate_devtools.demo.wordcount import WORDS_QUERY


def count_with_spark(folder: Path, result: Path, log: Path) -> dict[str, int]:
    """Runs the batch job in a separate process; returns the count of each word. Raises UserError."""
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "lockgate_devtools.demo.batch", str(folder), str(result)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if done.returncode != 0:
        raise UserError(f"the plain Spark batch job failed; see {log}")
    return read_result(result)


def read_result(result: Path) -> dict[str, int]:
    """The counts that a batch job has written to `result`, by word."""
    table = pq.read_table(result)
    return dict(zip(table.column("word").to_pylist(), table.column("n").to_pylist(), strict=True))


def main(folder: str, result: str) -> None:
    """The batch job."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):  # a host name may not resolve to this machine
        builder = builder.config(name, "127.0.0.1")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    spark = builder.getOrCreate()
    try:
        spark.read.text(folder).createOrReplaceTempView("input")
        spark.sql(WORDS_QUERY).createOrReplaceTempView("words")
        counts = spark.sql("SELECT word, count(*) AS n FROM words GROUP BY word").toArrow()
        pq.write_table(counts, result)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
