"""The class archive: the classes that a JVM has loaded and verified for Spark, in a file that later JVMs map.

A JVM that starts Spark loads ten thousand classes; with an archive Spark is warm after 5 s instead of 8. An archive
fits one Java version and one set of jars; the JVM checks this itself and starts without an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
_FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"  # a JVM that lives for half a minute; the file is the same


def path() -> Path | None:
    """The path of the archive for this machine's Java and PySpark, whether it exists or not; None without either of
    them.
    """
    java = _java()
    pyspark = find_spec("pyspark")
    if java is None or pyspark is None or pyspark.origin is None:
        return None
    seen = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in (java, Path(pyspark.origin))]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lockgate" / f"spark-{hashlib.sha256(repr(seen).encode()).hexdigest()[:16]}.jsa"


def options_to_use() -> str:
    """JVM options that load the archive; empty when there is none."""
    archive = path()
    return f"-XX:SharedArchiveFile={archive} {_QUIET}" if archive is not None and archive.is_file() else ""


def options_to_write(archive: Path) -> str:
    """JVM options that write one when the JVM ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {_FIRST_COMPILER_ONLY} {_QUIET}"


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    real = Path(found).resolve() if found else None
    return real if real is not None and real.is_file() else None
