"""The demo's input, its comparison and what it prints."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from lockgate_devtools.demo import screen
from lockgate_devtools.demo.corpus import Corpus, stage
from lockgate_devtools.demo.show import DemoRun
from lockgate_devtools.demo.wordcount import SOURCE, SPLIT, Comparison, compare
from lockgate_devtools.drill.timeline import Before
from lockgate_proto.messages import JobEvent, JobEventKind, JobGraph, JobState, JobStatus, OperatorStatus

from lockgate.client import Client
from lockgate.errors import UserError


def test_equal_counts_are_exact() -> None:
    assert compare({"a": 2, "b": 1}, {"b": 1, "a": 2}) == Comparison(2, 3, ())
    assert compare({"a": 2}, {"a": 2}).is_exact


@pytest.mark.parametrize("job", [{"a": 2}, {"a": 2, "b": 2}, {"a": 2, "b": 1, "c": 1}, {}])
def test_a_single_wrong_count_is_found(job: dict[str, int]) -> None:
    result = compare(job, {"a": 2, "b": 1})
    assert result.wrong
    assert not result.is_exact
    assert screen.verdict(result, was_killed=True)[-1].startswith("verdict: WRONG")


class EndedJob:
    """A job that has ended by the time it is looked at."""

    has_ended = True
    status = JobStatus(state=JobState.FINISHED)
    events: tuple[JobEvent, ...] = ()

    def wait_for(self, *_: object) -> bool:
        """Nothing changes any more."""
        return True

    def close(self) -> None:
        """Nothing is open."""


def test_the_verdict_does_not_mention_a_kill_that_came_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lockgate_devtools.demo.show.JobObserver", lambda *_: EndedJob())
    show = DemoRun(Corpus(tmp_path, "nothing", 0, 0), lambda _leader: pytest.fail("an ended job's leader was killed"))
    show.count(Mock(spec=Client), JobGraph())
    assert "the job has ended before the leader could be killed" in capsys.readouterr().out
    for was_killed, words in ((show.was_killed, "the job ended before the leader was killed"), (True, "was killed")):
        assert screen.verdict(Comparison(2, 3, ()), was_killed=was_killed)[-1].endswith(words)


def test_nothing_to_compare_is_not_exact() -> None:
    assert not compare({}, {}).is_exact


def test_a_folder_is_staged_flat_without_binary_and_hidden_files(tmp_path: Path) -> None:
    source = tmp_path / "texts"
    (source / "deep" / "er").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / "a.txt").write_text("one two\n")
    (source / "deep" / "er" / "a.txt").write_text("three\n")
    (source / "deep" / "_b").write_text("four")
    (source / "image").write_bytes(b"\x89PNG\0\0")
    (source / ".git" / "config").write_text("hidden")
    corpus = stage(source, tmp_path / "input")
    staged = sorted((tmp_path / "input").iterdir())
    assert corpus.files == len(staged) == 3
    assert sorted(path.read_text() for path in staged) == ["four", "one two\n", "three\n"]
    assert not any(path.name.startswith(("_", ".")) for path in staged)
    assert corpus.total_bytes == 18


def test_the_default_input_is_pythons_own_sources(tmp_path: Path) -> None:
    corpus = stage(None, tmp_path / "input")
    names = [path.name.partition("-")[2] for path in (tmp_path / "input").iterdir()]
    assert corpus.files == len(names) > 500
    assert "antigravity.py" in names
    assert all(name.endswith(".py") for name in names)


def test_an_input_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no text to count"):
        stage(tmp_path / "empty", tmp_path / "one")
    with pytest.raises(UserError, match="is not a folder"):
        stage(tmp_path / "missing", tmp_path / "two")


def test_the_timeline_shows_the_new_leader_only() -> None:
    kinds = (JobEventKind.LEADER_GRANTED, JobEventKind.FIRST_RECORD, JobEventKind.CHECKPOINT_COMPLETED)
    events = [JobEvent(kind, 1_000_000 + 5000 * n, 2, n, token=5) for n, kind in enumerate(kinds, 1)]
    events.append(JobEvent(JobEventKind.CHECKPOINT_COMPLETED, 1_000_100, 1, 9, token=4))
    lines = screen.timeline(Before(1_000_000, 4, 1), "pid 4711", events)
    assert [line.split(" ms")[0].strip() for line in lines] == ["0.0", "5.0", "10.0", "15.0"]


def test_the_timeline_does_not_say_that_an_adopted_attempt_is_restored() -> None:
    kinds = (JobEventKind.LEADER_GRANTED, JobEventKind.ATTEMPT_ADOPTED, JobEventKind.ATTEMPT_DEPLOYED)
    for attempt, last in ((1, "it goes on with the subtasks that run: nothing is restarted"), (2, "from the snapshot")):
        found = kinds if attempt == 1 else (kinds[0], kinds[2])
        events = [JobEvent(kind, 1_000_000 + 5000 * n, attempt, token=5) for n, kind in enumerate(found, 1)]
        assert screen.timeline(Before(1_000_000, 4, 1), "pid 4711", events)[-1].endswith(last)


def test_progress_shows_records_checkpoints_leader_and_restarts() -> None:
    operators = (OperatorStatus(SOURCE, records_out=500), OperatorStatus(SPLIT, records_out=4000))
    status = JobStatus(state=JobState.RUNNING, restarts=1, operators=operators, leader_address="127.0.0.1:7")
    line = screen.progress(status, 3.2, 1000, 4)
    for part in ("50 %", "500 lines", "4,000 words", "4 checkpoints", "1 restart ", "127.0.0.1:7"):
        assert part in line
