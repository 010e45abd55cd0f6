"""Prepares a machine: makes the class archive once, which halves the start time of every task manager."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from lockgate_taskmanager.runtime.warmup_jobs import run_sample
from lockgate_taskmanager.task.program import ProgramError


class PreparationError(ProgramError):
    """The archive could not be made. The message is one sentence."""


def prepare(is_forced: bool, say: Callable[[str], None]) -> Path:
    """Makes the archive unless it exists and returns its path. Takes half a minute. Raises ProgramError, OSError."""
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    from lockgate_taskmanager.spark import class_archive

    archive = class_archive.path()
    if archive is None:
        raise PreparationError("Java was not found: install Java 17 or newer and run this again")
    if archive.is_file() and not is_forced:
        return archive
    say("preparing Spark's class archive, which lets task managers start in half the time ...")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lockgate-prepare-") as work_dir:
        fresh = archive.with_name(f"{archive.name}.{os.getpid()}")
        try:
            _write(fresh, work_dir)
            fresh.replace(archive)
        finally:
            fresh.unlink(missing_ok=True)
    return archive


def _write(fresh: Path, work_dir: str) -> None:
    """Starts Spark, makes it load the classes that jobs need, and ends its JVM, which writes the file."""
    from lockgate_taskmanager.spark import class_archive
    from lockgate_taskmanager.spark.engine import SparkEngine

    engine = SparkEngine(work_dir=work_dir, java_options=class_archive.options_to_write(fresh))
    try:
        engine.warm_up()
        run_sample(engine, Path(work_dir), "prepare", lambda: True)
        engine.warm_python()
    finally:
        status = engine.close_jvm()
    if not fresh.is_file():
        raise PreparationError(f"Java (exit status {status}) wrote no class archive; is it a build without CDS?")
