"""`python -m benchmarks.spark_batch FOLDER RUNS RESULT`: the plain Spark batch word count, several times in one warm
session with default settings. Prints one JSON line with the seconds of each run; the counts go to RESULT (Parquet)."""

from __future__ import annotations

import json
import os
import sys
import time

import pyarrow.parquet as pq

QUERY = "SELECT explode(split(value, ' ')) AS word FROM input"


def main(folder: str, runs: int, result: str) -> None:
    """The first run warms the JVM up; it is printed like the others, in order."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    seconds = []
    for _ in range(runs):
        started = time.monotonic()
        spark.read.text(folder).createOrReplaceTempView("input")
        counts = spark.sql(f"SELECT word, count(*) AS n FROM ({QUERY}) GROUP BY word").toArrow()
        seconds.append(time.monotonic() - started)
    pq.write_table(counts, result)
    spark.stop()
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
