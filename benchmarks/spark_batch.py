"""`python -m benchmarks.spark_batch FOLDER RESULT`: the plain Spark batch word count, in one warm session with default
settings. Runs once for each line of its input and prints the seconds; at its end the counts go to RESULT (Parquet)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq

from lockgate.errors import UserError

_LIMIT_S = 300.0
QUERY = "SELECT explode(split(value, ' ')) AS word FROM input"


class SparkBatch:
    """That program as a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def run(self) -> float:
        """The seconds of one run. Raises UserError when it fails, or takes longer than five minutes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit = threading.Timer(_LIMIT_S, self._process.kill)
        limit.start()
        try:
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
            return float(self._process.stdout.readline())
        except (OSError, ValueError) as error:  # it has ended
            raise self.failed() from error
        finally:
            limit.cancel()

    def failed(self) -> UserError:
        """With the end of what it has printed."""
        return UserError(f"the Spark batch job failed or took too long: {self._log.read_text()[-2000:]}")


@contextmanager
def spark_batch(folder: Path, result: Path) -> Iterator[SparkBatch]:
    """The program over the files in `folder`; the counts are in `result` at the end. Raises UserError."""
    log = result.with_suffix(".log")
    command = [sys.executable, "-m", "benchmarks.spark_batch", str(folder), str(result)]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        batch = SparkBatch(process, log)
        try:
            yield batch
        except BaseException:
            process.kill()
            with suppress(OSError):
                process.communicate()  # what it was asked for last does not reach it any more
            raise
    if process.returncode:
        raise batch.failed()


def main(folder: str, result: str) -> None:
    """The first run warms the JVM up; it is printed like the others."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    counts = None
    for _ in sys.stdin:
        started = time.monotonic()
        spark.read.text(folder).createOrReplaceTempView("input")
        counts = spark.sql(f"SELECT word, count(*) AS n FROM ({QUERY}) GROUP BY word").toArrow()
        print(time.monotonic() - started, flush=True)
    if counts is not None:
        pq.write_table(counts, result)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
