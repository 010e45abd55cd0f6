"""The command line without a cluster: help, refusals, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from lockgate_common.tls import TlsFiles

from lockgate import cli
from lockgate.cli import COMMANDS, SECTIONS, run
from lockgate.errors import UserError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("LOCKGATE_CLUSTER", "LOCKGATE_CONFIG", "LOCKGATE_SECRET_FILE", "LOCKGATE_ZOOKEEPER"):
        monkeypatch.delenv(name, raising=False)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from lockgate.cli import run; run(['--help']); "
        "print([m for m in ('grpc', 'google.protobuf', 'pydantic', 'pyspark', 'rich', 'kazoo') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert "lockgate submit wordcount.py --wait" in out


def test_every_command_is_in_the_help_and_teaches_by_example() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    for name in COMMANDS:
        result = CliRunner().invoke(cli.cli, [name, "--help"])
        assert result.exit_code == 0, name
        assert re.search(rf"Examples:\n +lockgate {name}|Examples:\n(.*\n)* +.*lockgate {name}", result.output), name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"lockgate {version('lockgate')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["jbos"], "there is no command 'jbos'; did you mean `lockgate jobs`?"),
        (["xyz"], "`lockgate --help` lists the commands"),
        (["job"], "Missing argument 'KEY'. (see `lockgate job --help`)"),
        (["jobs", "--cluster", "nonsense"], "--cluster 'nonsense' is neither HOST:PORT"),
        (["jobs", "--config", "no.toml"], "cannot read the settings file no.toml"),
        (["cluster", "--coordinators", "0"], "0 is not in the range"),
        (["drill", "--kill", "cat"], "'cat' is not one of"),
        (["coordinator"], "give --storage DIRECTORY"),
        (["taskmanager", "--spark-option", "x"], "--spark-option takes KEY=VALUE"),
        (["cluster", "--spark-option", "=x"], "--spark-option takes KEY=VALUE"),
        (["drill", "--spark-option", "x"], "--spark-option takes KEY=VALUE"),
        (["drill", "--cluster", "h:1", "--spark-master", "spark://m:7077"], "are for the drill's own cluster"),
        (["zookeeper", "--config", "a.toml", "protect"], "--config before protect is for the server that"),
        (["zookeeper", "--port", "2281", "user"], "`lockgate zookeeper user --help` lists the options to give after"),
        (["taskmanager", "--slots", "0"], "--slots cannot be 0: too small; use 1 or more"),
        (["submit", "nofile.py"], "cannot read nofile.py"),
        (["submit", "nofile.json", "--dry-run"], "cannot read nofile.json"),
        (["submit", "p.py", "--dry-run", "--wait"], "--dry-run starts no job; leave out --wait and --from"),
        (["submit", "p.py", "--dry-run", "--from", "/s"], "--dry-run starts no job; leave out --wait and --from"),
        (["submit", "p.py", "--trust-snapshot"], "need a snapshot: name it with --from"),
        (["submit", "p.py", "--allow-unmatched-state"], "need a snapshot: name it with --from"),
        (["rescale", "k", "counts=2", "counts=3"], "counts=2 and counts=3 contradict each other"),
        (["cluster", "--zookeeper", "h:1", "--zookeepers", "3"], "are for the cluster's own ZooKeeper"),
        (["cluster", "--zookeeper", "h:1", "--zookeeper-port", "9"], "are for the cluster's own ZooKeeper"),
        (["drill", "--chaos", "--kill", "leader"], "omit --kill and --times, or --chaos"),
        (["drill", "--chaos", "--times", "3"], "omit --kill and --times, or --chaos"),
        (["drill", "--cluster", "h:1", "--storage", "/s"], "--slots, --storage, "),
        *(
            ([*command, number], words)
            for number in ("inf", "nan", "-inf", "1e300")
            for command, words in (
                (["savepoint", "k", "--timeout"], "'--timeout'"),
                (["stop", "k", "--timeout"], "'--timeout'"),
                (["rescale", "k", "counts=2", "--timeout"], "'--timeout'"),
                (["health", "h:1", "--timeout"], "'--timeout'"),
                (["top", "--every"], "'--every'"),
                (["drill", "--every"], "--every"),
                (["drill", "--chaos", "--minutes"], "--minutes"),
            )
        ),
    ],
)
def test_a_users_error_is_one_line_and_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("cluster.foreground", "drill.run"):
        monkeypatch.setattr(f"lockgate_devtools.{module}.LocalCluster", lambda *_, **__: pytest.fail("it was started"))
    Path("p.py").write_text("from lockgate import Job\njob = Job('p')\njob.generate(1).print()\njob.submit()\n")
    assert run(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("home", ["~", ""])
def test_the_folder_of_a_zookeeper_server_is_found_from_anywhere(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, used = Path.cwd(), []
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setattr("lockgate.commands.zookeeper._run_here", lambda folder, *_: used.append(folder) or 0)
    assert run(["zookeeper", f"--dir={home and f'{home}/'}data"]) == 0
    assert used == [here / "data"]


_ON_SPARK = ["--slots", "1", "--spark-master", "spark://m:7077", "--spark-option", "spark.executor.memory = 512m"]
_UNLIMITED: dict[str, Any] = {"folders": (), "variables": ()}
_THEN: dict[str, Any] = {"spark_master": "spark://m:7077", "spark_options": {"spark.executor.memory": "512m"}}


@pytest.mark.parametrize(
    ("arguments", "called", "expected"),
    [
        (
            ["cluster", *_ON_SPARK],
            "lockgate_devtools.cluster.run_cluster",
            {"slots": 1, "taskmanager": _THEN | _UNLIMITED},
        ),
        (["cluster"], "lockgate_devtools.cluster.run_cluster", {"slots": 2, "taskmanager": _UNLIMITED}),
        (
            ["drill", *_ON_SPARK],
            "lockgate_devtools.drill.run_drill",
            {"cluster_options": {"slots": 1, "taskmanager": _THEN}},
        ),
        (["drill"], "lockgate_devtools.drill.run_drill", {"cluster_options": {}, "minutes": 0.0}),
        (["drill", "--chaos"], "lockgate_devtools.drill.run_drill", {"minutes": 5.0}),
        (["drill", "--chaos", "--minutes", "2"], "lockgate_devtools.drill.run_drill", {"minutes": 2.0}),
    ],
)
def test_one_option_puts_the_task_managers_on_a_spark_cluster(
    arguments: list[str], called: str, expected: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(called, lambda *_, **options: given.update(options) or 0)
    assert run(arguments) == 0
    assert {name: given[name] for name in expected} == expected


_TLS = TlsFiles("/certificate", "/key", "/authority")
_FILES = "certificate = '/certificate'\nkey = '/key'\nauthority = '/authority'\n"


@pytest.mark.parametrize(
    ("arguments", "called", "expected"),
    [
        (["cluster"], "lockgate_devtools.cluster.run_cluster", {"zookeeper_tls": _TLS}),
        (["drill"], "lockgate_devtools.drill.run_drill", {"cluster_options": {"zookeeper_tls": _TLS}}),
        (["drill", "--cluster", "c:1"], "lockgate_devtools.drill.run_drill", {"cluster_options": {}}),
    ],
)
def test_a_cluster_of_ones_own_has_tls_with_zookeeper_when_the_settings_say_so(
    arguments: list[str], called: str, expected: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lockgate.toml").write_text(f"[zookeeper]\ntls = true\n{_FILES}")
    given: dict[str, object] = {}
    monkeypatch.setattr(called, lambda *_, **options: given.update(options) or 0)
    assert run(arguments) == 0
    assert {name: given[name] for name in expected} == expected


@pytest.mark.parametrize(("words", "zookeepers"), [((), 1), (("--zookeepers", "3"), 3)])
def test_demo_and_drill_take_tls_of_every_port_and_three_zookeeper_servers(
    words: tuple[str, ...], zookeepers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("tls.toml").write_text(f"[tls]\nmutual = true\n{_FILES}[zookeeper]\ntls = true\n")
    expected = {"tls": replace(_TLS, mutual=True), "zookeeper_tls": _TLS}
    given: dict[str, Any] = {}
    monkeypatch.setattr("lockgate_devtools.drill.run_drill", lambda **options: given.update(options) or 0)
    assert run(["drill", "--config", "tls.toml", *words]) == 0
    assert {"zookeepers": 1, **given["cluster_options"]} == {"zookeepers": zookeepers, **expected}
    given.clear()

    class NoCluster:
        def __init__(self, _folder: Path, **options: object) -> None:
            given.update(options)
            raise UserError("it is not started")

    monkeypatch.setattr("lockgate_devtools.demo.__main__.LocalCluster", NoCluster)
    Path("input").mkdir()
    Path("input/text").write_text("word\n")
    assert run(["demo", "--input", "input", "--config", "tls.toml", *words]) == 2
    assert given.pop("taskmanager")
    assert given == {"zookeepers": zookeepers, **expected}


def test_a_running_cluster_has_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("--config", "tls.toml"), ("--zookeepers", "3")):
        assert run(["drill", "--cluster", "c:1", *words]) == 2
        assert f"{words[0]}" in (said := capsys.readouterr().err)
        assert "for the drill's own cluster" in said


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Try it:" in capsys.readouterr().err


def test_ctrl_c_is_130_without_a_trace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lockgate.client.find_cluster", interrupt)
    assert run(["jobs"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_names_the_file_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("lockgate.client.find_cluster", fault)
    assert run(["jobs"]) == 1
    log = tmp_path / "XDG_STATE_HOME" / "lockgate" / "faults.log"
    assert f"error: unexpected ZeroDivisionError: oh; its traceback is in {log}" in capsys.readouterr().err
    assert "raise ZeroDivisionError" in log.read_text()


def test_a_reader_that_disconnects_causes_no_traceback() -> None:
    script = "import sys; from lockgate.cli import main; main(['--help'])"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_error_exits_as_with_it(closed: str, tmp_path: Path) -> None:
    (tmp_path / ".lockgate").mkdir()
    (tmp_path / ".lockgate" / "cluster.json").write_text("{}")
    waits = (  # in `working`, which looks at standard error
        "from lockgate import cli; from lockgate.commands import working, options;"
        "from contextlib import nullcontext; options.connect = nullcontext; cli.main(['jobs'])"
    )
    for script, code in (("from lockgate import cli; cli.main(['jobs'])", 2), (waits, 1)):
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, script],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, "")
    faults = (tmp_path / "XDG_STATE_HOME" / "lockgate" / "faults.log").read_text()
    assert "isatty" not in faults


def test_what_is_closed_gets_the_numbers_that_it_should_have() -> None:
    script = (
        "import os, socket, sys; from lockgate import cli; cli._open_streams();"
        "os._exit([sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.fileno()] != [0, 1, 2]"
        " or not all(map(os.get_inheritable, (0, 1, 2))) or socket.socket().fileno() < 3)"
    )
    command = ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, script]
    assert subprocess.run(command, check=False).returncode == 0


def test_dry_run_prints_a_graph_that_can_be_submitted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.py").write_text(
        "import sys\nfrom lockgate import Job\njob = Job('p', full_snapshot_every=10, binary_diff=True)\n"
        "job.read_text(sys.argv[2]).print()\njob.submit()\n"
    )
    assert run(["submit", "p.py", "--dry-run", "--", "--input", "/books"]) == 0
    graph = capsys.readouterr().out
    assert json.loads(graph)["vertices"][0]["operators"][0]["file_source"]["path"] == "/books"
    assert json.loads(graph)["state_backend"]["binary_diff"] is True
    Path("g.json").write_text(graph)
    assert run(["submit", "g.json", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(graph)


@pytest.mark.parametrize(
    ("source", "code", "words", "absent"),
    [
        ("from lockgate import Job\nJob('x'", 2, "SyntaxError: '(' was never closed", "lockgate/commands"),
        ("def f():\n    return {}['a']\nf()\n", 2, "line 2, in f", "lockgate/commands"),
        ("from lockgate import Job\nJob('x').read_text('')\n", 2, "p.py:2: read_text() needs a path", "Traceback"),
        ("x = 1\n", 2, "p.py submits no job", "Traceback"),
        ("import sys\nsys.exit(7)\n", 7, "", "error"),
        ("import sys\nsys.exit('no books')\n", 2, "error: no books", "Traceback"),
        ("import sys\nsys.exit()\n", 2, "submits no job", "Traceback"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['k']\n", 2, "ZeroDivisionError", "lockgate/commands"),
        ("x = '\\0'\n\0\n", 2, "p.py is not", "Traceback"),
    ],
)
def test_a_broken_file_shows_only_its_authors_part(
    source: str, code: int, words: str, absent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.py").write_text(source)
    assert run(["submit", "p.py", "--dry-run"]) == code
    err = capsys.readouterr().err
    assert words in err
    assert absent not in err


def test_one_key_for_two_jobs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.py").write_text(
        "from lockgate import Job\nfor n in 'ab':\n    job = Job(n)\n    job.generate(1).print()\n    job.submit()\n"
    )
    assert run(["submit", "p.py", "--dry-run", "--key", "k"]) == 2
    assert "--key fits only one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"), [("g.json", b"{"), ("g.json", b'{"nme": 1}'), ("g.pb", b"\xff\xff"), ("g.pb", b"")]
)
def test_a_file_without_a_graph_is_refused(name: str, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_bytes(content)
    assert run(["submit", name, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert f"error: {name} is not a job graph" in said or f"error: {name} contains a job graph without" in said


def test_the_group_is_a_click_command_for_completion() -> None:
    assert isinstance(cli.cli, click.Group)
    assert cli.cli.list_commands(click.Context(cli.cli)) == list(COMMANDS)
