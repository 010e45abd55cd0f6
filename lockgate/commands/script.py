"""Runs a user's pipeline file inside `lockgate submit`, and shows only the user's part of a traceback."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path

from lockgate.errors import UserError
from lockgate.pipeline.errors import PipelineError

_OWN_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep


class ScriptError(UserError):
    """The pipeline file cannot be run, or raised an exception."""


class ScriptExit(Exception):
    """The pipeline file called `sys.exit` with a code other than success."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit {code}")
        self.code = code


def run_script(file: str, arguments: Sequence[str]) -> None:
    """Runs the file as `python FILE ARGUMENTS` would, in this process.

    Raises ScriptError with the user's own part of a traceback, ScriptExit, and UserError unchanged.
    """
    path = os.path.abspath(file)
    code = _compiled(path, file)
    module = types.ModuleType("__main__")
    module.__file__ = path
    before = sys.modules["__main__"], list(sys.argv), list(sys.path)
    sys.modules["__main__"] = module
    sys.argv = [file, *arguments]
    sys.path[0:0] = [os.path.dirname(path)]
    try:
        exec(code, module.__dict__)
    except UserError:
        raise
    except SystemExit as error:
        _check_exit(error)
    except TypeError as error:
        from lockgate.pipeline.habits import keyword_problem

        if problem := keyword_problem(error):
            raise PipelineError(problem, _line_of(error, path)) from error
        raise ScriptError(f"{file} failed\n{_own_part(error, path)}") from error
    except Exception as error:
        raise ScriptError(f"{file} failed\n{_own_part(error, path)}") from error
    finally:
        sys.modules["__main__"], sys.argv, sys.path = before


def _compiled(path: str, file: str) -> types.CodeType:
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        raise ScriptError(f"cannot read {file}: {error.strerror}") from error
    try:
        return compile(source, path, "exec")
    except SyntaxError as error:
        text = "".join(traceback.format_exception_only(error)).rstrip()
        raise ScriptError(f"{file} is not valid Python\n{text}") from None
    except ValueError as error:
        raise ScriptError(f"{file} is not a Python file: {error}") from None


def _line_of(error: BaseException, path: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}:{lines[-1]}" if lines else path


def _own_part(error: BaseException, path: str) -> str:
    """The traceback from the user's file on, without the frames of Lockgate."""
    linecache.checkcache(path)
    described = traceback.TracebackException.from_exception(error)
    current: traceback.TracebackException | None = described
    while current is not None:
        frames = list(current.stack)
        first = next((i for i, frame in enumerate(frames) if frame.filename == path), 0)
        kept = [frame for frame in frames[first:] if not frame.filename.startswith(_OWN_PACKAGE)]
        current.stack = traceback.StackSummary.from_list(kept)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "".join(described.format()).rstrip()


def _check_exit(error: SystemExit) -> None:
    if error.code in (None, 0):
        return
    if isinstance(error.code, int):
        raise ScriptExit(error.code)
    raise ScriptError(str(error.code))
