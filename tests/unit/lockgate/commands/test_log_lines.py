"""Log lines become records, merged by time and picked by job."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_common.logs import ATTEMPT_ENDED, ATTEMPT_STARTS

from lockgate.cli import run
from lockgate.commands.log_lines import OfJob, Parser, Record, time_of
from lockgate.commands.logs import Log, merged

TASK_MANAGER = f"""\
lockgate taskmanager ready: id=tm-0 exchange=127.0.0.1:1 slots=2
2026-11-23T10:00:00.100Z INFO control lockgate_taskmanager.runtime.deployments: {ATTEMPT_STARTS % (1, "a-1", 2)}
2026-11-23T10:00:00.200Z INFO control lockgate_taskmanager.runtime.deployments: {ATTEMPT_STARTS % (7, "a-12", 2)}
printed by a job
    with an indent
2026-11-23T10:00:00.300Z INFO subtask-rows[0]@1 lockgate_taskmanager.runtime.subtask_task: rows[0]@1 failed
    Traceback (most recent call last):
    ValueError: x
2026-11-23T10:00:00.400Z INFO subtask-rows[0]@7 lockgate_taskmanager.runtime.messages: rows[0]@7: SUBTASK_RUNNING
2026-11-23T10:00:00.500Z INFO subtask-rows[0]@1 lockgate_taskmanager.runtime.deployments: {ATTEMPT_ENDED % (1, "a-1")}
printed by another job
2026-11-23T10:00:00.600Z INFO warm-up lockgate_taskmanager.runtime.warmup: warmed up job a-12: its plans are warm
"""
COORDINATOR = """\
2026-11-23T10:00:00.050Z INFO rpc-loop lockgate.audit: Submit job='a-1' by='the secret' from=ipv4:127.0.0.1:1: OK
2026-11-23T10:00:00.450Z INFO dispatcher a.status_publisher: job a-1: ATTEMPT_FAILED, attempt 1: of a-1
2026-11-23T10:00:00.460Z INFO dispatcher a.status_publisher: job a-12: the column a-1 is unknown
"""


def parsed(text: str) -> list[Record]:
    parser = Parser("tm-0")
    return [*parser.take(text.splitlines()), *parser.rest()]


def test_a_record_is_a_line_with_a_time_and_what_is_indented_below_or_what_was_printed() -> None:
    found = parsed(TASK_MANAGER)
    assert [len(record.lines) for record in found] == [1, 1, 1, 2, 3, 1, 1, 1, 1]
    assert [record.is_printed for record in found] == [True, False, False, True, False, False, False, True, False]
    assert found[3].at == "2026-11-23T10:00:00.200", "as old as the record before"
    assert found[4].text().splitlines()[2] == "tm-0      ValueError: x"


def test_json_lines_have_times_too() -> None:
    assert time_of('{"time": "2026-11-23T12:10:30.644+00:00", "level": "INFO"}') == "2026-11-23T12:10:30.644"
    assert time_of("2026-11-23T12:10:30.316Z INFO dispatcher a: b") == "2026-11-23T12:10:30.316"
    assert time_of('{"time": 4}') == time_of("printed") == ""


def test_lines_of_a_version_that_wrote_no_date_come_first(tmp_path: Path) -> None:
    undated = "\n".join(line.removeprefix("2026-11-23T") for line in TASK_MANAGER.splitlines())
    (tmp_path / "a.log").write_text(f"{undated}\n2026-11-24T00:00:00.100Z INFO t l: job a-1: with a date\n")
    (tmp_path / "b.log").write_text(COORDINATOR)
    found = list(merged([Log(tmp_path / "a.log", "a-1"), Log(tmp_path / "b.log", "a-1")]))
    picked = ["a", "a", "a", "a", "b", "b", "a"]
    assert [record.process for record in found] == picked
    assert [len(record.lines) for record in found] == [1, 2, 3, 1, 1, 1, 1]


def test_only_the_lines_of_a_job_are_picked() -> None:
    job = OfJob("a-1")
    picked = [record.at for record in parsed(TASK_MANAGER) if job.takes(record)]
    assert picked == [
        "2026-11-23T10:00:00.100",
        "2026-11-23T10:00:00.200",
        "2026-11-23T10:00:00.300",
        "2026-11-23T10:00:00.500",
    ], "with what it printed"
    other = OfJob("a-12")
    assert [record.at for record in parsed(TASK_MANAGER) if other.takes(record)][-1] == "2026-11-23T10:00:00.600"


def test_a_process_that_was_killed_runs_nothing_when_it_is_back() -> None:
    job = OfJob("a-1")
    killed = TASK_MANAGER.splitlines()[1]
    text = (
        f"{killed}\nprinted\n2026-11-23T10:00:01.000Z INFO t l: m\nlockgate taskmanager ready: id=tm-0\nprinted later"
    )
    assert [record.lines[0] for record in parsed(text) if job.takes(record)] == [killed, "printed"]


def _folder(tmp_path: Path) -> Path:
    logs = tmp_path / ".lockgate" / "logs"
    logs.mkdir(parents=True)
    (logs / "taskmanager-0.log").write_text(TASK_MANAGER)
    (logs / "coordinator-0.log").write_text(COORDINATOR)
    return logs


def test_logs_are_merged_by_time(tmp_path: Path) -> None:
    logs = _folder(tmp_path)
    found = list(merged([Log(path, None) for path in sorted(logs.glob("*.log"))]))
    assert [record.at for record in found] == sorted(record.at for record in found)
    (logs / "coordinator-0.log").write_text(COORDINATOR.replace("2026-11-23T10", "2026-11-22T23"))
    earlier = list(merged([Log(path, None) for path in sorted(logs.glob("*.log"))]))
    assert [record.process for record in earlier[:4]] == ["taskmanager-0", *["coordinator-0"] * 3], "of the day before"


def test_the_command_shows_a_jobs_lines_of_a_cluster_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKGATE_CLUSTER", raising=False)
    assert run(["logs", "a-1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("coordinator-0  2026-11-23T10:00:00.050Z INFO rpc-loop lockgate.audit: Submit job='a-1'")
    assert "taskmanager-0  printed by a job" in lines
    assert not [line for line in lines if "a-12: the column" in line]
    assert run(["logs", "a-1", "--tail", "1", "--cluster", ".lockgate"]) == 0
    assert ATTEMPT_ENDED % (1, "a-1") in capsys.readouterr().out
    assert run(["logs", "nothing"]) == 0
    assert "has no lines of job nothing" in capsys.readouterr().out


def test_only_a_broken_cluster_file_leads_to_the_logs_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _folder(tmp_path).parent / "cluster.json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKGATE_CLUSTER", raising=False)
    for content in (b"{", b"\xff", b"[]"):
        file.write_bytes(content)
        assert run(["logs", "a-1"]) == 0
        assert "job a-1" in capsys.readouterr().out.replace("'", "")
    (tmp_path / "lockgate.toml").write_text("[nothing]\n")
    for arguments in (["--config", "typo.toml"], [], ["--cluster", "nowhere"], ["--cluster", "h:99999"]):
        assert run(["logs", *arguments]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("error: ")) == ("", 1)


def test_later_lines_are_read_from_where_the_log_ended(tmp_path: Path) -> None:
    path = _folder(tmp_path) / "coordinator-0.log"
    log = Log(path, "a-1")
    assert len(list(log.read())) == 2
    assert not list(log.read())
    with path.open("a") as file:
        file.write("2026-11-23T10:00:02.000Z INFO dispatcher a: job a-1: half a li")
        file.flush()
        assert not list(log.read()), "only whole lines"
        file.write("ne\n")
    assert [record.lines for record in log.read()] == [
        ("2026-11-23T10:00:02.000Z INFO dispatcher a: job a-1: half a line",)
    ]


def test_follow_shows_new_lines_and_new_logs_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKGATE_CLUSTER", raising=False)
    steps = iter(("coordinator-0", "coordinator-9", ""))

    def between(_seconds: float) -> None:
        if not (name := next(steps)):
            raise KeyboardInterrupt
        with (folder / f"{name}.log").open("a") as file:
            file.write(f"2026-11-23T11:00:00.000Z INFO dispatcher a: job a-1: from {name}\n")

    monkeypatch.setattr("lockgate.commands.logs.time.sleep", between)
    assert run(["logs", "a-1", "--follow", "--tail", "1"]) == 130
    assert [line.rpartition(" ")[2] for line in capsys.readouterr().out.splitlines()[-2:]] == [
        "coordinator-0",
        "coordinator-9",
    ]
