"""JSON of others: a value, or one readable sentence, whatever the text is."""

from __future__ import annotations

import contextlib
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_common.json_input import MAX_DEPTH, JsonError, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_json_reads_its_own_output(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=60) | st.text('[]{}",:-+.0123456789eE\\ud83 truefalsn', max_size=60))
def test_anything_else_is_one_error(text: bytes | str) -> None:
    with contextlib.suppress(JsonError):
        parse_json(text)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 990, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_deeply_nested_input_is_refused(depth: int, opened: str, closed: str) -> None:
    for text in (opened * depth + "1" + closed * depth, opened * depth):
        with pytest.raises(JsonError, match=r"nested more than 200 levels deep|not JSON"):
            parse_json(text)
    with pytest.raises(JsonError, match="nested"):
        parse_json(opened * depth + "1" + closed * depth)


def test_a_value_of_allowed_depth_can_be_walked_through() -> None:
    value = parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert json.loads(json.dumps(value)) == value
    assert parse_json(json.dumps([[[]]] * 1_000)) == [[[]]] * 1_000, "many lists are not deep ones"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ("[1e999]", "'1e999' is not a JSON number"),
        ("NaN", "'NaN' is not a JSON number"),
        ("-Infinity", "'-Infinity' is not a JSON number"),
        ("1" * 100_000, "too large a number"),
        ('"\\ud800"', "half of a surrogate pair"),
        ('{"\\uDfff": 1}', "half of a surrogate pair"),
        (b"\xff", "not UTF-8"),
        ("", "not JSON: Expecting value"),
    ],
)
def test_refusals_give_the_reason(text: str | bytes, why: str) -> None:
    with pytest.raises(JsonError) as refused:
        parse_json(text)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 120


def test_a_caller_that_is_deep_in_calls_already_gets_the_same_error() -> None:
    def deep(calls: int) -> object:
        return deep(calls - 1) if calls else parse_json("[" * 190 + "]" * 190)

    with pytest.raises(JsonError, match="nested"):
        deep(sys.getrecursionlimit() - 150)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"
