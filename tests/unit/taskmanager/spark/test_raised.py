"""Which line of the author's code an error is blamed on."""

from __future__ import annotations

import json

import pytest
from lockgate_taskmanager.spark.raised import line_of, raised, raised_in, traceback_of

WORKER = """Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/pyspark/worker.py", line 1982, in main
    process()
  File "jobs/words.py", line 12, in split
    return parse(row)
  File "jobs/words.py", line 7, in parse
    return json.loads(row)
  File "/usr/lib/python3.12/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def test_the_last_line_of_the_authors_is_named_where_a_library_raised() -> None:
    text = raised_in(WORKER, "JSONDecodeError: Expecting value")
    assert text == "the Python function raised JSONDecodeError: Expecting value (line 7 of words.py, in parse)"


def test_a_function_without_a_name_is_named_by_its_line_and_no_frame_by_nothing() -> None:
    text = 'Traceback (most recent call last):\n  File "words.py", line 3, in <lambda>\nKeyError: 1'
    assert raised_in(text, "KeyError: 1") == "the Python function raised KeyError: 1 (line 3 of words.py)"
    file = "/usr/lib/python3.12/site-packages/lockgate_taskmanager/x.py"
    inner = f'Traceback (most recent call last):\n  File "{file}", line 3, in f\nKeyError: 1'
    assert raised_in(inner, "KeyError: 1") == "the Python function raised KeyError: 1"
    assert raised(ValueError("never raised")) == "the Python function raised ValueError: never raised"


def test_the_last_of_a_chain_of_errors_counts() -> None:
    first = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n'
    second = 'Traceback (most recent call last):\n  File "b.py", line 2, in g\nValueError: 2'
    text = f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{second}"
    assert raised_in(text, "ValueError: 2").endswith("(line 2 of b.py, in g)")


def test_an_exception_is_blamed_on_this_file() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("")
    assert raised(caught.value).endswith(line_of(caught.value))
    assert line_of(ValueError("never raised")) == ""
    assert line_of(caught.value).endswith(" of test_raised.py, in test_an_exception_is_blamed_on_this_file)")


def _fails() -> None:
    json.loads("")


def _wrapped() -> Exception:
    try:
        _fails()
    except ValueError as error:
        outer = RuntimeError("of Lockgate")
        outer.__cause__ = error
        return outer
    raise AssertionError("it does not fail")


def test_the_traceback_begins_at_the_authors_first_frame_and_ends_where_it_was_raised() -> None:
    lines = traceback_of(_wrapped()).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith(", in _wrapped")
    assert any(line.endswith(", in _fails") for line in lines)
    assert any("json/decoder.py" in line for line in lines), "what the author called belongs to it"
    assert lines[-1] == "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"


def test_the_traceback_of_a_worker_has_neither_the_workers_frames_nor_javas() -> None:
    text = traceback_of(RuntimeError(f"An exception was thrown from a UDF:\n{WORKER}"))
    assert text.splitlines()[1] == '  File "jobs/words.py", line 12, in split'
    assert text.endswith("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)")
    assert "worker.py" not in text


def test_an_error_without_the_authors_code_has_no_traceback() -> None:
    assert traceback_of(RuntimeError("storage is away")) == ""
    circle = RuntimeError("a")
    circle.__context__ = RuntimeError("b")
    circle.__context__.__context__ = circle
    assert traceback_of(circle) == ""
