"""A folder of many files that is watched, over restarts and rescales: every line counts once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.codec import decode
from lockgate_proto.messages import FileFormat, FileSink, JobGraph, SourceState, SubtaskState
from lockgate_taskmanager.spark import split_log
from lockgate_taskmanager.state.format.split_files import names_in
from lockgate_taskmanager.task.known_splits import KnownSplits
from lockgate_taskmanager.task.program import Exhausted

from tests.committed import rows_of

from .graphs import graph, text, vertex
from .results import rescale

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
Kept = dict[tuple[str, int], SubtaskState]


def watched(folder: Path, parallelism: int = 2, is_watched: bool = True) -> JobGraph:
    source = text(folder / "in", continuous=is_watched, poll_interval_ms=int(is_watched))
    return graph(vertex("source", source, FileSink(str(folder / "out"), FileFormat.PARQUET), parallelism=parallelism))


def write(folder: Path, first: int, last: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        (folder / f"{number:03}.txt").write_text(f"{number}\n")


def read_all(run: Any, known: KnownSplits) -> None:
    """What is in the folder and not known goes to the subtasks in turn, and is read."""
    splits, is_complete = run.engine.discover(run.graph, "source", known)
    known.update(split.split for split in splits)
    widths = run.graph.vertices[0].parallelism
    for subtask in range(widths):
        run.programs["source", subtask].assign(splits[subtask::widths], is_complete)
        while run.batch("source", subtask):
            pass


def names_of(kept: Kept) -> KnownSplits:
    """As the leader says it, and the files that it hands on."""
    states = [state for item in kept.values() for state in item.operators if state.operator_id == "source0"]
    inside = [
        split.split for state in states if state.handle for split in decode(SourceState, state.handle.inline).splits
    ]
    return KnownSplits([*inside, *names_in([file for state in states for file in state.files])])


def test_no_file_is_read_twice_or_missed(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_log, "APART_FROM", 5)
    write(tmp_path / "in", 0, 40)
    run, known = job(watched(tmp_path)), KnownSplits(f"{number:03}.txt" for number in range(40))
    read_all(run, known)
    kept: Kept = run.checkpoint(1)
    assert all(state.operators[0].files for state in kept.values())
    write(tmp_path / "in", 40, 44)
    with (tmp_path / "in" / "007.txt").open("a") as file:
        file.write("7 more\n")
    (tmp_path / "in" / "009.txt").unlink()
    read_all(run, known)
    kept = run.checkpoint(2, base_id=1)
    write(tmp_path / "in", 44, 50)
    read_all(run, known)
    run.checkpoint(3, commit=False, base_id=2)
    run.close()
    run.start(kept, 2)
    known = names_of(kept)
    assert len(known) == 44
    read_all(run, known)
    kept = run.checkpoint(4, base_id=2)
    write(tmp_path / "in", 50, 53)
    with (tmp_path / "in" / "007.txt").open("a") as file:
        file.write("7 again\n")
    for number, parallelism in enumerate((3, 1), start=5):
        subject = watched(tmp_path, parallelism)
        rescale(run, subject, kept, number - 1)
        known = names_of(kept)
        read_all(run, known)
        kept = run.checkpoint(number)
    found = sorted(row["value"] for row in rows_of(tmp_path / "out"))
    assert found == sorted([*map(str, range(53)), "7 more", "7 again"])


@pytest.mark.parametrize("apart_from", [3, 500])
@pytest.mark.parametrize(("before", "now"), [(False, False), (False, True), (True, False)])
def test_another_run_reads_what_has_come_since(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart_from: int, before: bool, now: bool
) -> None:
    """Whether one of them watches the folder or both read what is there; with splits in files, and inside."""
    monkeypatch.setattr(split_log, "APART_FROM", apart_from)
    write(tmp_path / "in", 0, 10)
    run = job(watched(tmp_path, is_watched=before))
    read_all(run, KnownSplits())
    kept: Kept = run.checkpoint(1)
    (tmp_path / "in" / "008.txt").unlink()
    write(tmp_path / "in", 10, 12)
    with (tmp_path / "in" / "003.txt").open("a") as file:
        file.write("3 more\n")
    rescale(run, watched(tmp_path, 3, is_watched=now), kept, 1, reopens=True)
    read_all(run, names_of(kept))
    assert all(isinstance(program.poll(), Exhausted) != now for program in run.programs.values())
    run.checkpoint(2)
    assert sorted(row["value"] for row in rows_of(tmp_path / "out")) == sorted([*map(str, range(12)), "3 more"])
