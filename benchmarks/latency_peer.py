"""`python -m benchmarks.latency_peer CASE PORT SAMPLE WINDOW_MS FOLDER`: a case of `benchmarks.latency` in plain
Structured Streaming with its default trigger. Prints `time number number ...` for each result until the process ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.latency_figures import KEYS


def query(spark: Any, case: str, port: int, sample: int, window_ms: int) -> tuple[Any, str]:
    """The DataFrame of the case, of whole numbers, and its output mode."""
    from pyspark.sql import functions as sf

    lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
    records = lines.selectExpr(
        "CAST(split(value, ' ')[0] AS BIGINT) AS id", "timestamp_millis(CAST(split(value, ' ')[1] AS BIGINT)) AS at"
    ).selectExpr("id", f"pmod(id, {KEYS}) AS key", "at")
    if case == "stateless":
        return records.where(f"id % {sample} = 0").select("id"), "append"
    if case == "window":
        timed = records.withWatermark("at", "0 seconds")
        counted = timed.groupBy(sf.window("at", f"{window_ms} milliseconds"), "key").count()
        return counted.selectExpr("key", "unix_millis(window.end)", "count"), "append"
    counted = records.groupBy("key").agg(sf.count("*").alias("n"))
    return (counted.mapInArrow(unchanged, "key BIGINT, n BIGINT") if case == "keyed_python" else counted), "update"


def unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    """The Python stage: it hands its input on."""
    yield from batches


def show(frame: Any, _: int) -> None:
    """Prints the numbers of a batch with the time at which they were there."""
    columns = frame.toArrow().columns
    now = time.time()
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    print("".join(f"{now} {' '.join(map(str, row))}\n" for row in rows), end="", flush=True)


def main(case: str, port: int, sample: int, window_ms: int, folder: str) -> None:
    """Runs until it is ended."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC")
    spark = builder.getOrCreate()
    frame, mode = query(spark, case, port, sample, window_ms)
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", folder)
    writer.foreachBatch(show).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5])
