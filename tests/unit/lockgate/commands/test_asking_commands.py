"""Every command that waits for an answer of the cluster shows meanwhile what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest
from click.testing import CliRunner

from lockgate import cli
from lockgate.commands import logs, options
from lockgate.errors import UserError

COMMANDS = (
    ["status"],
    ["jobs"],
    ["job", "k"],
    ["job", "k", "--story"],
    ["checkpoints", "k"],
    ["query", "k", "counts", "a"],
    ["leader"],
    ["release", "k"],
    ["cancel", "k"],
    ["savepoint", "k"],
    ["savepoint", "list", "k"],
    ["savepoint", "dispose", "k", "1"],
    ["stop", "k"],
    ["logs"],
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_that_waits_says_for_what(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Asked:
        """A client: what is shown at its first call."""

        def __getattr__(self, name: str) -> Any:
            raise UserError(f"{name} while showing: {shown}")

    @contextmanager
    def connected(_target: dict[str, str | None]) -> Iterator[Asked]:
        yield Asked()

    @contextmanager
    def working(text: str) -> Iterator[None]:
        shown.append(text)
        yield
        shown.clear()

    cli.cli.get_command(click.Context(cli.cli), arguments[0])  # imported now, its module keeps the real ones
    monkeypatch.setattr(options, "connect", connected)
    monkeypatch.setattr(options, "working", working)
    monkeypatch.setattr(logs, "_folder", lambda _target: None)
    error = CliRunner().invoke(cli.cli, arguments).exception
    assert "while showing: ['" in str(error)
