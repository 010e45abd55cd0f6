"""What a waiting command shows."""

from __future__ import annotations

import sys

import pytest

from lockgate.commands.working import working


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with working("job k starts"):
        print("in between")
    assert capsys.readouterr() == ("in between\n", "")


def test_a_terminal_shows_what_is_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with working("job k starts [a/b]"):
        pass
    assert "job k starts [a/b]" in capsys.readouterr().err
