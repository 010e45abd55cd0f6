"""`lockgate tokens`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lockgate_common.security import load_secret, load_token

from lockgate.cli import run
from lockgate.settings import load_settings


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("LOCKGATE_CONFIG", "LOCKGATE_SECRET_FILE", "LOCKGATE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_token_is_printed_once_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["tokens", "create", "nightly", "--role", "submit", "--role", "operate", "--days", "3"]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "token"
    path.write_text(printed)
    path.chmod(0o600)
    token = load_token(path)
    assert token.is_of(load_secret(tmp_path / "lockgate" / "secret", create=False))
    assert run(["tokens", "list"]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("nightly  submit,operate  until ")
    assert token.random not in listed
    monkeypatch.setenv("LOCKGATE_TOKEN_FILE", str(path))
    credentials = load_settings().credentials()
    assert (credentials.secret, credentials.token) == ("", token)
    assert run(["tokens", "remove", "nightly"]) == 0
    assert run(["tokens", "remove", "nightly"]) == 2
    assert "there is no token named 'nightly'" in capsys.readouterr().err


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokens", "create", "a name", "--role", "read"]) == 2
    assert "is not a name" in capsys.readouterr().err
    assert run(["tokens", "create", "me", "--role", "root"]) == 2
    assert "read" in capsys.readouterr().err
    assert run(["tokens", "create", "me", "--role", "read", "--tokens-file", str(tmp_path / "no" / "file")]) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "token").write_text("nonsense")
    (tmp_path / "token").chmod(0o600)
    settings = load_settings(None, {"security": {"token_file": str(tmp_path / "token")}})
    with pytest.raises(Exception, match="is not a token: it should contain the output of `lockgate tokens create`"):
        settings.credentials()


def test_a_token_that_cannot_be_printed_is_not_made() -> None:
    command = [sys.executable, "-m", "lockgate", "tokens", "create", "me", "--role", "read"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error: the token could not be printed, so it was not made: No space left on device\n",
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_without_an_output_a_command_does_its_work() -> None:
    command = f"{sys.executable} -m lockgate tokens list >&-"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "there are no tokens\n")
    done = subprocess.run(f"{command} --nonsense", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such option")
