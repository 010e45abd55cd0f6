"""What counts as a mutant that was noticed, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mutation import witness
from tests.mutation.__main__ import Failure
from tests.mutation.catalogue import Mutant

MUTANT = Mutant("some", "something", ())


def mutants_code(source: str) -> Callable[[], Any]:
    """A function `f` as if a file of tests/mutation had defined it."""
    names: dict[str, Any] = {}
    exec(compile(source, str(witness._HERE / "some_mutant.py"), "exec"), names)
    return names["f"]  # type: ignore[no-any-return]


def judged(call: Callable[[], Any], mutant: Mutant = MUTANT) -> str:
    """What the runner says of a test that is `call` and nothing else."""
    item: Any = SimpleNamespace(user_properties=[])
    hook = witness.pytest_runtest_makereport(item, pytest.CallInfo.from_call(call, "call"))
    next(hook)
    noted = item.user_properties
    raised = tuple(name for key, value in noted if key == witness.RAISED for name in value.split())
    broken = tuple(value for key, value in noted if key == witness.BROKEN)
    return Failure("test", raised, broken).proves_nothing(mutant)


def failing() -> None:
    assert [] == [1]


def test_an_assertion_notices_a_mutant() -> None:
    assert judged(failing) == ""


def test_an_error_that_was_expected_and_did_not_come_is_an_assertion() -> None:
    def nothing_raised() -> None:
        with pytest.raises(LookupError):
            pass

    assert judged(nothing_raised) == ""


def test_a_mutant_that_is_broken_itself_is_not_noticed() -> None:
    outdated = mutants_code("def f(): return [].attempt")
    assert judged(outdated) == "the mutant itself is broken: AttributeError: 'list' object has no attribute 'attempt'"


def test_a_broken_mutant_shows_behind_an_assertion_too() -> None:
    outdated = mutants_code("def f(): return unknown")

    def wrapped() -> None:
        try:
            outdated()
        except NameError as error:
            raise AssertionError("the run failed") from error

    assert "the mutant itself is broken: NameError" in judged(wrapped)


def test_any_other_error_counts_only_where_the_catalogue_names_it() -> None:
    def empty() -> None:
        raise LookupError("nothing came")

    assert judged(empty) == "it ended by LookupError, not by an assertion"
    assert judged(empty, Mutant("some", "something", (), ("LookupError",))) == ""


def test_every_error_of_a_group_has_to_be_a_proof() -> None:
    def several() -> None:
        raise ExceptionGroup("two", [AssertionError("proof"), KeyError("none")])

    assert judged(several) == "it ended by KeyError, not by an assertion"
