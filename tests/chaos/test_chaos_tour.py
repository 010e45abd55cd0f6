"""The README's tour: its commands, unchanged, print what it shows, and the ledger is right at the end."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lockgate_proto.messages import JobState

from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S, drain, generated, path_of, rows_read

pytestmark = [pytest.mark.chaos, pytest.mark.first]

README = Path(__file__).resolve().parents[2] / "README.md"
KEY = re.compile(r"ledger-[0-9a-f]{8}")
VARYING = re.compile(rf"\(127[^;]*\)|{KEY.pattern}|session [0-9a-f]+|[\d.]+ [KMG]?i?B\b|\d+(?:[.:]\d+)*")


def patterns(shown: list[str]) -> list[re.Pattern[str]]:
    """One for each line of output: numbers, times, sizes and keys differ from run to run."""
    found = []
    for line in shown:
        fixed = [re.escape(part) for part in VARYING.split(line)]
        kinds = [r"\(127.*\)" if part.startswith("(") else r"[\w.:-]+(?: \w+)?" for part in VARYING.findall(line)]
        found.append(re.compile("".join(a + b for a, b in zip(fixed, [*kinds, ""], strict=True)) + "$"))
    return found


def tour() -> dict[str, list[str]]:
    """The commands behind `$`, each with the lines that it prints."""
    text = README.read_text(encoding="utf-8").partition("\n## A tour\n")[2].partition("\n## ")[0]
    (block,) = [block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if block.startswith("$ ")]
    commands = [part.strip().split("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return {lines[0]: lines[1:] for lines in commands}


def come_in_order(expected: list[re.Pattern[str]], printed: str) -> bool:
    """Whether the lines are there, in this order, maybe with others between them."""
    lines = iter(printed.splitlines())
    return all(any(pattern.match(line) for line in lines) for pattern in expected)


class Terminal:
    """Of a user in an empty folder, with the examples beside it."""

    def __init__(self, testing: TestingCluster, folder: Path) -> None:
        (folder / "examples").symlink_to(README.parent / "examples")
        self.folder = folder
        self._environment = {
            **os.environ,
            "LOCKGATE_CLUSTER": str(testing.cluster.directory),
            "LOCKGATE_SECRET_FILE": str(testing.cluster.secret_file),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def run(self, command: str) -> str:
        """Returns what it prints."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, command: str) -> Iterator[Path]:
        """Runs a command in the background; yields the file with its output."""
        output = self.folder / "watch.txt"
        with output.open("wb") as file:
            other = subprocess.Popen(
                command.split(), cwd=self.folder, env=self._environment, stdout=file, stderr=subprocess.STDOUT
            )
        try:
            yield output
        finally:
            other.terminate()
            other.wait(PATIENCE_S)


def test_the_tour(testing: TestingCluster, tmp_path: Path) -> None:
    (submit, submitted), (leader, leading), (kill, watched) = tour().items()
    terminal = Terminal(testing, tmp_path)
    printed = terminal.run(submit)
    assert come_in_order(patterns(submitted), printed), printed
    key = KEY.findall(printed)[0]
    testing.wait_until(lambda: testing.client.job(key).checkpoints_completed > 0, "a checkpoint")

    printed = terminal.run(leader)
    assert come_in_order(patterns(leading), printed), printed
    pid = re.findall(r"pid (\d+)", printed)[0]
    (watch,) = re.findall(r"`(lockgate watch [^`]*)`", kill)
    expected = patterns(watched)
    with terminal.running(KEY.sub(key, watch)) as output:
        testing.wait_until(lambda: come_in_order(expected[:1], output.read_text()), "a checkpoint before the kill")
        terminal.run(re.sub(r"^kill -9 \d+", f"kill -9 {pid}", kill))
        testing.wait_until(lambda: come_in_order(expected, output.read_text()), f"what the tour shows: {output}")

    assert terminal.run(f"lockgate savepoint {key}").strip()
    terminal.run(f"lockgate rescale {key} totals=1")
    pointer = terminal.run(f"lockgate stop {key}").split()[-1]
    again = KEY.findall(terminal.run(f"{submit} --from {pointer}"))[0]
    (read,) = rows_read(path_of(drain(testing.client, again))).values()
    testing.wait_until(lambda: testing.client.job(again).state is JobState.FINISHED, "the end of the ledger")
    ends = dict(enumerate(generated(read, 4)))
    rows = pq.read_table(tmp_path / "ledger", columns=["partition", "sequence"]).to_pylist()
    assert Counter((row["partition"], row["sequence"]) for row in rows) == Counter(
        (number, sequence) for number, end in ends.items() for sequence in range(end)
    )
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        totals = database.execute("SELECT partition, rows_seen, last FROM totals").fetchall()
    assert sorted(totals) == [(number, end, end - 1) for number, end in ends.items()]
