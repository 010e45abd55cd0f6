"""Another user of this machine, without any right, and what that user can do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOBODY = 65534
_BECOME = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
"""A command that becomes that user. `Popen(user=...)` would fork this process, of which one with gRPC in it dies."""
_PATIENCE_S = 240.0

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command as that user, in the root folder."""
    clean = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*_BECOME, *command],
        cwd="/",
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        **options,
    )


def run_module(module: str, given: Any) -> Any:
    """A module of the tests as that user. given: what it reads as JSON; returned is the JSON that it prints."""
    done = run(sys.executable, "-m", module, input=json.dumps(given))
    assert done.returncode == 0, f"{NOBODY} cannot run {module}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def readable(folder: Path) -> list[str]:
    """Files below the folder that the user can read, and folders that it can list."""
    found = run(
        "find", str(folder), "(", "-type", "f", "-o", "-type", "d", ")", "-readable", "-not", "-path", str(folder)
    )
    return found.stdout.splitlines()
