"""How the keys of `lockgate query` are read."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from click.testing import CliRunner

from lockgate import cli
from lockgate.commands import options
from lockgate.commands.query import _values
from lockgate.errors import UserError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("the", ["the"]),
        ('["EUR", 2024]', ["EUR", 2024]),
        ("[not json", ["[not json"]),
        ('["[1, 2]"]', ["[1, 2]"]),
    ],
)
def test_a_text_like_a_list_can_be_given(text: str, values: list[Any]) -> None:
    assert _values(text) == values


class Asked:
    """A client: what it is asked for."""

    def __init__(self) -> None:
        self.keys: list[Any] = []

    def query(self, _job: str, keys: dict[str, Any], _checkpoint: int) -> Any:
        self.keys = keys["op"]
        raise UserError("asked")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    client = Asked()
    monkeypatch.setattr(options, "connect", lambda _target: nullcontext(client))
    return client


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["-5"], ["-5"]),
        (["-1.5", "--checkpoint", "7", "7", "--json"], ["-1.5", "7"]),
        (["-5h", "-hello", "a b"], ["-5h", "-hello", "a b"]),
        (["--json", "5", "--", "--abc", "-h"], ["5", "--abc", "-h"]),
    ],
)
def test_a_key_may_begin_with_a_dash(asked: Asked, arguments: list[str], keys: list[str]) -> None:
    result = CliRunner().invoke(cli.cli, ["query", "job", "op", *arguments])
    assert "asked" in f"{result.output}{result.exception}"
    assert asked.keys == [[key] for key in keys]


@pytest.mark.parametrize("arguments", [["--jsn", "job", "op", "5"], ["job", "op", "5", "--jsn"]])
def test_a_mistyped_option_is_no_key(asked: Asked, arguments: list[str]) -> None:
    result = CliRunner().invoke(cli.cli, ["query", *arguments])
    assert (result.exit_code, asked.keys) == (2, [])
    assert "No such option" in result.output
    assert "--jsn" in result.output


def test_a_missing_value_of_an_option_is_named(asked: Asked) -> None:
    result = CliRunner().invoke(cli.cli, ["query", "job", "op", "-5", "--checkpoint"])
    assert (result.exit_code, asked.keys) == (2, [])
    assert "Option '--checkpoint' requires an argument" in result.output


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_still_there(asked: Asked, option: str) -> None:
    result = CliRunner().invoke(cli.cli, ["query", "job", option])
    assert (result.exit_code, asked.keys) == (0, [])
    assert "Read what OPERATOR of job KEY holds" in result.output
