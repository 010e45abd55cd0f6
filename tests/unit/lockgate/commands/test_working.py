"""What a waiting command shows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from lockgate.commands import working as module
from lockgate.commands.working import working

TEXT = "job k starts [a/b]"


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Standard error is a terminal, standard output is not. Set when something is shown, which is at once.

    No fixture: between set-up and test pytest replaces both.
    """
    found, show = threading.Event(), module._shown

    def noted(text: str) -> Callable[[], None]:
        stop = show(text)
        found.set()
        return stop

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(module, "_shown", noted)
    monkeypatch.setattr(module, "_AFTER_S", 0)
    return found


def test_nothing_is_shown_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_terminal(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with working(TEXT):
        print("in between")
    assert capsys.readouterr() == ("in between\n", "")
    assert not shown.is_set()


def test_a_terminal_shows_what_is_waited_for_until_it_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_terminal(monkeypatch)
    with working(TEXT):
        assert shown.wait(60)
        assert TEXT in capsys.readouterr().err
    assert "\x1b[?25h" in capsys.readouterr().err, "the cursor is back"


def test_it_ends_with_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)

    def interrupted() -> None:
        with working(TEXT):
            assert shown.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "\x1b[?25h" in capsys.readouterr().err, "the cursor is back"


def test_a_quick_answer_shows_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch)
    monkeypatch.setattr(module, "_AFTER_S", 3_600)
    with working(TEXT):
        pass
    assert capsys.readouterr() == ("", "")
    assert not shown.is_set()


def test_what_is_printed_meanwhile_stays_on_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_terminal(monkeypatch)
    with working(TEXT):
        assert shown.wait(60)
        print("a result")
    assert capsys.readouterr().out == "a result\n"
