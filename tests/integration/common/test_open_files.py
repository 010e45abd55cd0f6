"""Coordinators and task managers raise the limit on open files before anything else."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

PROGRAM = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
from lockgate_{room}.runtime.process import run
from lockgate_{room}.runtime.settings import {kind} as Settings
assert run(Settings({fields})) == 2  # settings that are refused
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


@pytest.mark.parametrize(
    ("room", "kind", "fields"),
    [
        ("coordinator", "CoordinatorSettings", "zookeeper='127.0.0.1:1', storage=''"),
        ("taskmanager", "TaskManagerSettings", "zookeeper='127.0.0.1:1', work_dir='/nowhere', slots=0"),
    ],
)
def test_the_soft_limit_becomes_the_hard_one(room: str, kind: str, fields: str) -> None:
    program = PROGRAM.format(room=room, kind=kind, fields=fields)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
