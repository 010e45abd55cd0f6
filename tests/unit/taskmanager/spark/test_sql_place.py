"""Where in an SQL text an error is."""

from __future__ import annotations

from lockgate_taskmanager.spark.sql_place import sql_place

PARSE = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'sequence'. SQLSTATE: 42601 (line 2, pos 28)

== SQL ==
SELECT sequence,
  partition FROM input WHER sequence > 3
----------------------------^^^
"""


def test_an_error_of_the_parser_has_its_line_and_what_is_there() -> None:
    assert sql_place(PARSE) == " (line 2, position 29: partition FROM input WHER sequence > 3)"


def test_an_error_of_the_analyzer_has_its_position_and_fragment() -> None:
    text = "[UNRESOLVED_COLUMN] A column `nope` cannot be resolved. SQLSTATE: 42703; line 2 pos 2;\n'Project [...]"
    assert sql_place(text, "nope + 1") == " (line 2, position 3: nope + 1)"
    assert sql_place(text) == " (line 2, position 3)"


def test_a_long_line_is_cut_and_no_position_is_no_text() -> None:
    assert sql_place("line 1 pos 0", "x" * 200) == f" (line 1, position 1: {'x' * 80} ...)"
    assert sql_place("Attribute `nope` is not supported.", "nope") == ""
