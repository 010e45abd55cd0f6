"""The commands against scripted coordinators over real gRPC."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from lockgate_proto import messages as m

from lockgate.cli import cli, run
from lockgate.client import Client, JobWatch
from tests.integration.lockgate_client.fake_cluster import PATIENCE_MS, Cluster, status

pytestmark = pytest.mark.integration

PIPELINE = "from lockgate import Job\njob = Job('words', key='k')\njob.read_text('/b').print()\njob.submit()\n"


@pytest.fixture(autouse=True)
def _here(user_folder: Path, cluster: Cluster) -> None:
    (user_folder / "p.py").write_text(PIPELINE)
    for coordinator in cluster.coordinators:  # a job that runs well
        coordinator.first_updates = [m.JobEvent(m.JobEventKind.FIRST_RECORD, 1_000_000)]


def test_leader(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["leader", "--json"]) == 0
    expected = {"address": cluster.addresses[0], "pid": 4242, "token": 1, "session": "0x1f"}
    assert json.loads(capsys.readouterr().out) == expected
    assert run(["leader"]) == 0
    assert capsys.readouterr().out == f"{cluster.addresses[0]}  pid 4242  token 1  session 0x1f\n"


def test_status_shows_every_process_its_slots_and_the_jobs(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, standby = cluster.addresses
    cluster.task_managers = (m.TaskManagerStatus("tm-0", "h:1", 7, 4, 1),)
    for key, state in (("a", m.JobState.RUNNING), ("b", m.JobState.FAILED), ("c", m.JobState.RUNNING)):
        cluster.jobs[key] = (m.JobGraph(), status(key, state))
    assert run(["status"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        ["COORDINATOR", "ADDRESS", "PID", "ROLE"],
        ["c-1", leader, "4243", "leader"],
        ["c-2", standby, "4244", "standby"],
        ["TASK", "MANAGER", "ADDRESS", "PID", "SLOTS", "FREE"],
        ["tm-0", "h:1", "7", "4", "1"],
        ["jobs:", "1", "FAILED,", "2", "RUNNING"],
        ["zookeeper:", "the", "leader", "reports", "no", "trouble"],
        ["storage:", "no", "job", "reports", "trouble"],
    ]
    assert run(["status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["leader"]["address"] == leader
    assert [coordinator["leader"] for coordinator in found["coordinators"]] == [True, False]
    assert found["task_managers"] == [{"id": "tm-0", "address": "h:1", "pid": 7, "slots": 4, "free_slots": 1}]
    assert found["jobs"] == {"RUNNING": 2, "FAILED": 1}
    assert found["zookeeper_trouble"] is None


def test_status_names_the_missing_processes(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    del cluster.coordinators[1:]
    assert run(["status"]) == 0
    shown = capsys.readouterr().out
    assert "There is no standby" in shown
    assert "There is no task manager" in shown
    assert "jobs: none" in shown


def test_jobs_are_listed_newest_first_and_by_state(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    for number, state in enumerate((m.JobState.RUNNING, m.JobState.FAILED, m.JobState.RUNNING)):
        cluster.jobs[f"k{number}"] = (m.JobGraph(), status(f"k{number}", state, submitted_unix_ms=1000 + number))
    assert run(["jobs"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["KEY", "k2", "k1", "k0"]
    assert run(["jobs", "--state", "running", "--json"]) == 0
    assert [job["key"] for job in json.loads(capsys.readouterr().out)] == ["k2", "k0"]
    assert run(["jobs", "--state", "finished"]) == 0
    assert capsys.readouterr().out == "none of the 3 jobs is FINISHED\n"
    assert run(["jobs", "--state", "gone"]) == 2


@pytest.mark.parametrize("command", [["job"], ["savepoint", "take"], ["cancel", "--wait"]])
def test_a_shell_completes_the_keys_of_the_cluster(cluster: Cluster, command: list[str]) -> None:
    for number, key in enumerate(("words-1", "words-2", "other")):
        cluster.jobs[key] = (m.JobGraph(), status(key, m.JobState.RUNNING, submitted_unix_ms=1000 + number))
    complete = ShellComplete(cli, {}, "lockgate", "_LOCKGATE_COMPLETE")
    assert [item.value for item in complete.get_completions(command, "wo")] == ["words-2", "words-1"]
    for coordinator in cluster.coordinators:
        coordinator.die()
    assert complete.get_completions(command, "wo") == []


def test_the_story_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "k", "--story"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line[12:] for line in shown[:-1]] == [
        "  c1-1       coordinator-0: a timer is due, because of timer",
        "             -> tm-0: go",
        "  tm-0.ab-7  tm-0 count[0]@2: it goes [A -> B], because of c1-1",
        "",
    ]
    assert shown[-1] == "Some of k is missing."
    assert run(["job", "k", "--story", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["remarks"] == ["Some of k is missing."]
    assert printed["lines"][1] == {
        "id": "tm-0.ab-7",
        "cause_id": "c1-1",
        "unix_us": 1_002_000,
        "process": "tm-0",
        "place": "count[0]",
        "attempt": 2,
        "event": "it goes",
        "change": "A -> B",
        "effects": [],
    }


def test_status_says_which_jobs_have_trouble_with_the_storage(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("a", "b"):
        trouble = m.StorageTrouble(1, f"the disk of {key} is full\nOSError: 28")
        cluster.jobs[key] = (m.JobGraph(), status(key, storage_trouble=trouble))
    for command in ("status", "top"):
        assert run([command]) == 0
        assert "storage: failing for a and 1 more: the disk of a is full\n" in capsys.readouterr().out


def test_status_says_that_the_leader_cannot_reach_zookeeper(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.zookeeper_trouble = "no server answers"
    for command in ("status", "top"):
        assert run([command]) == 0
        assert "zookeeper: not reachable from the leader (no server answers); tasks run on" in capsys.readouterr().out
    assert run(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["zookeeper_trouble"] == "no server answers"


def test_submit_says_that_the_job_runs(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "p.py"]) == 0
    assert capsys.readouterr().out == "job k is running (attempt 1)\n"
    assert run(["submit", "p.py"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "job k was submitted before; following it"
    assert [submission.job_key for submission in cluster.submissions] == ["k", "k"]


def test_submit_of_a_job_without_records_says_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.pipeline.submission.SETTLE_MS", 100)
    cluster.coordinators[0].first_updates = []
    assert run(["submit", "p.py"]) == 0
    assert capsys.readouterr().out == "job k is running (attempt 1); no record has reached a sink yet\n"


EACH = "from lockgate import Job\ndef show(df, number): ...\njob = Job('words', key='k')\n"
EACH += "job.read_text('/b').foreach_batch(show)\njob.submit()\n"
BEFORE = [m.JobEvent(m.JobEventKind.FIRST_RECORD, 1), m.JobEvent(m.JobEventKind.CHECKPOINT_COMPLETED, 2)]


def test_a_job_that_writes_with_python_is_followed_until_that_was_called(
    cluster: Cluster, user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records and checkpoints come before its first call."""
    (user_folder / "p.py").write_text(EACH)
    failed = status("k", m.JobState.FAILED, error="operator 'foreach_batch-1': ValueError: no")
    cluster.coordinators[0].first_updates = [*BEFORE, status("k"), failed]
    assert run(["submit", "p.py"]) == 1
    assert "ValueError: no" in capsys.readouterr().err
    cluster.jobs.clear()
    cluster.coordinators[0].first_updates = [*BEFORE, status("k"), m.JobEvent(m.JobEventKind.FIRST_COMMIT, 3)]
    assert run(["submit", "p.py"]) == 0
    assert capsys.readouterr().out == "job k is running (attempt 1)\n"


def test_a_job_whose_python_was_not_called_in_time_is_said_to_have_written_nothing(
    cluster: Cluster, user_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.pipeline.submission.SETTLE_MS", 500)
    (user_folder / "p.py").write_text(EACH)
    cluster.coordinators[0].first_updates = [*BEFORE, status("k")]
    assert run(["submit", "p.py"]) == 0
    assert capsys.readouterr().out == "job k is running (attempt 1); its sink has not written anything yet\n"
    cluster.coordinators[0].first_updates = [status("k")]
    assert run(["submit", "p.py"]) == 0, "the same job again: its checkpoint is proof enough"
    assert capsys.readouterr().out.splitlines() == [
        "job k was submitted before; following it",
        "job k is running (attempt 1)",
    ]


@pytest.mark.parametrize(
    ("patched", "said"),
    [
        (
            "lockgate.client.Client.submit",
            "job k may or may not be submitted: `lockgate job k` shows it; --key k submits it",
        ),
        (
            "lockgate.client.JobHandle.watch",
            "job k is submitted, and continues without this command; `lockgate watch k`",
        ),
    ],
)
def test_an_interrupted_submit_says_what_becomes_of_the_job(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, patched: str, said: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(patched, interrupted)
    assert run(["submit", "p.py"]) == 130
    assert capsys.readouterr().out.startswith(said)


def test_submit_prints_the_leaders_warnings(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.warnings = ("Checkpoints are at least once.",)
    assert run(["submit", "p.py"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "warning: Checkpoints are at least once."


def test_submit_options_reach_the_cluster(cluster: Cluster) -> None:
    assert run(["submit", "p.py", "--key", "mine", "--from", "file:///s/_metadata"]) == 0
    assert (cluster.submissions[0].job_key, cluster.submissions[0].restore_from) == ("mine", "file:///s/_metadata")
    assert not cluster.submissions[0].trust_snapshot
    assert run(["submit", "p.py", "--from", "file:///s/_metadata", "--trust-snapshot"]) == 0
    assert cluster.submissions[1].trust_snapshot


def test_submit_of_a_job_that_fails_at_once_shows_why(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.first_state = m.JobState.DEPLOYING
    cluster.coordinators[0].first_updates = [
        status("k", m.JobState.FAILED, error="read_text-1: no such folder: /b", last_checkpoint=None),
        None,
    ]
    assert run(["submit", "p.py"]) == 1
    assert capsys.readouterr().err == "error: read_text-1: no such folder: /b\n"


def test_a_job_that_fails_just_after_its_start_is_still_caught(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.pipeline.submission.SETTLE_MS", PATIENCE_MS)
    cluster.coordinators[0].first_updates = [status("k", m.JobState.FAILED, error="no column `wrod`"), None]
    assert run(["submit", "p.py"]) == 1
    assert "no column `wrod`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "waits", "by_itself"),
    [
        (
            m.JobState.WAITING_FOR_SLOTS,
            "waiting for slots",
            "It starts automatically when a task manager joins or another job ends",
        ),
        (m.JobState.RESTARTING, "restarting", "It continues automatically"),
    ],
)
def test_submit_of_a_waiting_job_gives_the_reason_and_the_next_commands(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    state: m.JobState,
    waits: str,
    by_itself: str,
) -> None:
    monkeypatch.setattr("lockgate.pipeline.submission.START_TIMEOUT_MS", 5_000)
    cluster.coordinators[0].first_updates = [
        status("k", state, message="needs 2 slots, 0 free in 1 task manager", last_checkpoint=None)
    ]
    assert run(["submit", "p.py"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"job k is submitted and still {waits}: needs 2 slots, 0 free in 1 task manager. {by_itself}; "
        "`lockgate watch k` follows it, `lockgate cancel k` ends it"
    )


def test_wait_follows_a_failover_and_exits_by_the_result(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = cluster.coordinators
    first.first_updates = [m.JobEvent(m.JobEventKind.FIRST_RECORD, 1_000_000), "die"]
    second.first_updates = [
        m.JobEvent(m.JobEventKind.LEADER_GRANTED, 2_000_000, token=2, text="token 2"),
        status("k", m.JobState.FAILED, error="disk full"),
        None,
    ]
    assert run(["submit", "p.py", "--wait"]) == 1
    captured = capsys.readouterr()
    assert "leader granted: token 2" in captured.out
    assert "job k has ended: FAILED" in captured.out
    assert captured.err.endswith("error: job k failed: disk full\n")


def test_wait_exits_0_when_the_job_has_finished(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.coordinators[0].first_updates = [status("k", m.JobState.FINISHED), None]
    assert run(["submit", "p.py", "--wait"]) == 0
    assert capsys.readouterr().out.endswith("job k has ended: FINISHED\n")


def test_jobs_and_job(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs"]) == 0
    assert "no jobs; submit one" in capsys.readouterr().out
    cluster.jobs["k"] = (m.JobGraph(), status("k", restarts=2))
    assert run(["jobs", "--json"]) == 0
    assert [(load["key"], load["state"], load["restarts"]) for load in json.loads(capsys.readouterr().out)] == [
        ("k", "RUNNING", 2)
    ]
    assert run(["job", "k", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["attempt"], shown["restarts"]) == ("RUNNING", 1, 2)
    assert shown["operators"] == [
        {
            "id": "read_text-1",
            "name": "read_text",
            "vertex": "read_text-1",
            "records_in": 0,
            "records_out": 100,
            "records_late": 0,
            "records_malformed": 0,
            "records_ahead": 0,
            "records_failed": 0,
            "records_lost": 0,
        }
    ]
    last = shown["last_checkpoint"]
    assert (last["id"], last["size_bytes"], last["duration_ms"]) == (7, 2048, 45)
    assert (last["longest_sync_ms"], last["longest_alignment_ms"]) == (1.5, 4)
    assert run(["job", "k"]) == 0
    text = capsys.readouterr().out
    assert "k  RUNNING  attempt 1  restarts 2" in text
    assert "last checkpoint 7: 2.0 KiB, 45 ms (sync 1.5 ms, alignment 4 ms)" in text


def test_watch_as_json_lines(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k"))
    cluster.coordinators[0].first_updates = [
        m.JobEvent(m.JobEventKind.CHECKPOINT_COMPLETED, 5, 1, 8, 1),
        status("k", m.JobState.CANCELED),
        None,
    ]
    assert run(["watch", "k", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["status"]["state"] == "CANCELED"
    assert [line["event"]["checkpoint_id"] for line in lines if "event" in line] == [8]


def test_checkpoints_savepoint_and_cancel(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k"))
    assert run(["checkpoints", "k", "--json"]) == 0
    assert [load["id"] for load in json.loads(capsys.readouterr().out)] == [7, 6, 5]
    assert run(["checkpoints", "k"]) == 0
    assert "file:///s/chk-7/_metadata" in capsys.readouterr().out
    assert run(["savepoint", "k"]) == 0
    assert capsys.readouterr().out == "file:///s/chk-9/_metadata\n"
    assert run(["savepoint", "k", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "savepoint"
    assert run(["cancel", "k", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"key": "k", "state": "CANCELING"}


def test_savepoints_are_taken_listed_and_disposed_of(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k"))
    assert run(["savepoint", "take", "k"]) == 0
    assert capsys.readouterr().out == "file:///s/chk-9/_metadata\n"
    assert run(["savepoint", "k", "--request-id", "before-upgrade"]) == 0
    assert capsys.readouterr().out == "file:///s/chk-9/_metadata\n"
    assert cluster.savepoints[1] == "before-upgrade"
    assert run(["savepoint", "list", "k", "--json"]) == 0
    assert [load["id"] for load in json.loads(capsys.readouterr().out)] == [5]
    assert run(["savepoint", "dispose", "k", "5"]) == 0
    assert "job k no longer has a savepoint 5" in capsys.readouterr().out
    assert run(["savepoint", "dispose", "k", "7"]) == 2
    assert "newest snapshot" in capsys.readouterr().err


def test_stop_prints_the_pointer_of_the_savepoint(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k"))
    assert run(["stop", "k"]) == 0
    assert capsys.readouterr().out == "file:///s/chk-9/_metadata\n"
    assert run(["stop", "k", "--drain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == 10


@pytest.mark.parametrize(("state", "code"), [(m.JobState.FINISHED, 0), (m.JobState.FAILED, 1)])
def test_stop_prints_the_pointer_before_it_waits(
    state: m.JobState, code: int, cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []

    def watch(client: Client, key: str, **options: Any) -> JobWatch:
        printed.append(capsys.readouterr().out)
        return watch_job(client, key, **options)

    watch_job = Client.watch
    monkeypatch.setattr(Client, "watch", watch)
    cluster.jobs["k"] = (m.JobGraph(), status("k"))
    cluster.coordinators[0].first_updates = [status("k", state), None]
    assert run(["stop", "k", "--wait"]) == code
    assert printed == ["file:///s/chk-9/_metadata\n"]
    after = capsys.readouterr()
    assert after.out == "", "the pointer is the last line"
    assert ("job k failed" in after.err) == (code == 1)


def test_stop_that_is_interrupted_as_it_waits_has_printed_the_pointer(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "watch", interrupted)
    cluster.jobs["k"] = (m.JobGraph(), status("k"))
    assert run(["stop", "k", "--wait"]) == 130
    printed = capsys.readouterr()
    assert printed.out == "file:///s/chk-9/_metadata\n"
    assert "the savepoint is taken" in printed.err


def test_rescale_returns_when_the_job_runs_at_it(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k"))
    assert run(["rescale", "k", "read=2", "counts=3"]) == 0
    assert capsys.readouterr().out == "job k is running (attempt 2): read=2, counts=3\n"


@pytest.mark.parametrize("text", ["counts", "counts=0", "=3", "counts=many"])
def test_rescale_wants_a_vertex_and_a_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rescale", "k", text]) == 2
    assert "is not OPERATOR=N" in capsys.readouterr().err


def test_rescale_takes_an_operators_name_and_says_its_vertex(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    operators = (m.OperatorStatus("rows", "generate", "rows"), m.OperatorStatus("sql-1", "sql", "rows"))
    cluster.jobs["k"] = (m.JobGraph(), replace(status("k"), operators=operators))
    assert run(["rescale", "k", "sql=3", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "sql runs in vertex rows\n"
    assert json.loads(captured.out)["parallelism"] == {"rows": 3}
    assert run(["rescale", "k", "sql=3", "generate=2"]) == 2
    assert "'generate' is in vertex 'rows', for which another number is given" in capsys.readouterr().err


def test_submit_as_json_leaves_everything_else_to_stderr(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], user_folder: Path
) -> None:
    cluster.warnings = ("Mind the gap.",)
    (user_folder / "p.py").write_text(f"print('hello')\n{PIPELINE}")
    assert run(["submit", "p.py", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["key"], found["state"], found["created"], found["warnings"]) == (
        "k",
        "RUNNING",
        True,
        ["Mind the gap."],
    )
    assert captured.err.splitlines() == ["hello", "warning: Mind the gap.", "job k is running (attempt 1)"]
    assert run(["submit", "p.py", "--json", "--dry-run"]) == 2


def test_logs_of_a_cluster_elsewhere_are_said_to_be_on_its_hosts(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.task_managers = (m.TaskManagerStatus("tm-0", "h:1", 7, 4, 1),)
    assert run(["logs", "k"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["c-1", "c-2", "tm-0"]
    assert "journalctl -u 'lockgate-*'" in out


def test_a_secret_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "--secret-file", "nowhere"]) == 2
    assert "--secret-file: there is no file nowhere" in capsys.readouterr().err


def test_an_unknown_job_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("job", "watch", "checkpoints", "savepoint", "cancel"):
        assert run([command, "nope"]) == 2
        assert capsys.readouterr().err == ("error: no job 'nope' on this cluster; `lockgate jobs` lists its jobs\n")


def test_a_job_is_not_submitted_if_no_coordinator_proves_to_be_the_cluster(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without secret, token and TLS, whoever listens at an address that the cluster has left could take it."""
    (tmp_path / "config" / "lockgate" / "secret").unlink()
    assert run(["submit", "p.py"]) == 2
    printed = capsys.readouterr().err
    assert f"there is no secret file, so no coordinator at {cluster.addresses[0]} can prove" in printed
    assert "LOCKGATE_SECRET_FILE" in printed
    assert cluster.submissions == []


def test_query_shows_the_checkpoint_and_each_key(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k", m.JobState.RUNNING))
    assert run(["query", "k", "counts", "the", '["of"]']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["as of checkpoint 7", "KEY       VALUE", "word=the  n=3", "word=of   -"]
    assert run(["query", "k", "counts", "the", "--checkpoint", "5", "--json"]) == 0
    found = {"operator": "counts", "key": {"word": "the"}, "found": True, "value": {"values": {"n": 3}}}
    assert json.loads(capsys.readouterr().out) == {"checkpoint": 5, "values": [found]}


def test_the_history_of_checkpoints_says_what_became_of_each(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k", m.JobState.RUNNING))
    assert run(["checkpoints", "k", "--history"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["8", "checkpoint", "aborted"],
        ["7", "checkpoint", "retained"],
        ["4", "checkpoint", "subsumed"],
        ["3", "savepoint", "disposed"],
    ]
    assert lines[1].endswith("3 of 4  not acknowledged in time by count-1")
    assert run(["checkpoints", "k", "--history", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["outcome"] for each in found] == ["aborted", "completed", "completed", "completed"]
    assert (found[0]["reason"], found[1]["retained"], found[2]["retained"]) == ("expired", True, False)
    assert run(["checkpoints", "k", "--history", "--offsets"]) == 2
    assert "choose one of --offsets and --history" in capsys.readouterr().err


def test_checkpoints_show_where_their_barriers_were_injected(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.jobs["k"] = (m.JobGraph(), status("k", m.JobState.RUNNING))
    assert run(["checkpoints", "k", "--offsets"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["ID", "SOURCE", "SUBTASK", "SPLIT", "OFFSET", "END"],
        ["7", "read", "0", "a.txt", "40", "90"],
        ["7", "read", "0", "b.txt", "7", "-"],
    ]
    assert run(["checkpoints", "k", "--offsets", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["id"], only["offsets"][0]["splits"][0]) == (7, {"split": "a.txt", "offset": 40, "end": 90})
