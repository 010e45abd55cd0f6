"""Starts the word count process, and reads its answer."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from . import word_count_process

PATIENCE_S = 500.0
STARTED_BY_US = "words source[0] attempt 1, "
"""How jobs of its first source are called."""


def write_words(folder: Path) -> dict[str, int]:
    """Writes text files, and returns their word counts."""
    choice = random.Random(3)
    counted: Counter[str] = Counter()
    for number in range(4):
        lines = [" ".join(f"w{int(choice.paretovariate(0.8))}" for _ in range(8)) for _ in range(4000)]
        counted.update(word for line in lines for word in line.split(" "))
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return dict(counted)


def word_count(
    master: str, folder: Path, work: Path, executors: int = 0, **options: str
) -> subprocess.CompletedProcess[str]:
    """Runs the engine in a process of its own, once it has so many executors."""
    spec = {"master": master, "options": options, "input": str(folder), "work": str(work), "executors": executors}
    command = [sys.executable, word_count_process.__file__, json.dumps(spec)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a process has printed last."""
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
