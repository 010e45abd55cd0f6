"""What counts as a mutant that was noticed, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mutation import witness
from tests.mutation.__main__ import sum_up
from tests.mutation.catalogue import MUTANTS, Mutant
from tests.mutation.verdict import Evidence, judge
from tests.mutation.witness import Witness

TEST = "tests/some.py::test_it"
OTHER = "tests/some.py::test_another"
MUTANT = Mutant("some", "something", (TEST,))
FOLDER = Path(witness.__file__).parent
NO_MUTANTS = {"__init__", "__main__", "catalogue", "processes", "rewrite", "verdict", "witness"}


def mutants_code(source: str) -> Callable[[], Any]:
    """A function `f` as if a file of tests/mutation had defined it."""
    names: dict[str, Any] = {}
    exec(compile(source, str(witness._HERE / "some_mutant.py"), "exec"), names)
    return names["f"]  # type: ignore[no-any-return]


def seen(witness_of_run: Witness, test: str, call: Callable[[], Any], when: Any = "call") -> None:
    """One phase of a test that is `call` and nothing else."""
    item: Any = SimpleNamespace(nodeid=test)
    next(witness_of_run.pytest_runtest_makereport(item, pytest.CallInfo.from_call(call, when)))


def judged(call: Callable[[], Any], mutant: Mutant = MUTANT, when: Any = "call") -> str:
    """What the runner says of a test that is `call` and nothing else."""
    evidence = Witness(mutant.tests, stops_early=True)
    seen(evidence, TEST, call, when)
    verdict = judge(mutant, Evidence(evidence.passed, evidence.failures, 0.0))
    return "".join(verdict.void).removeprefix(f"{TEST}: ")


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
    assert judged(empty, Mutant("some", "something", (TEST,), ("LookupError",))) == ""


def test_every_error_of_a_group_has_to_be_a_proof() -> None:
    def several() -> None:
        raise ExceptionGroup("two", [AssertionError("proof"), KeyError("none")])

    assert judged(several) == "it ended by KeyError, not by an assertion"


def test_a_test_that_could_not_be_set_up_proves_nothing() -> None:
    assert judged(failing, when="setup") == "it ended in its setup: AssertionError"


def verdict_of(*calls: tuple[str, Callable[[], Any]]) -> Any:
    """On a mutant that lists two tests."""
    mutant = Mutant("some", "something", (TEST, OTHER))
    evidence = Witness(mutant.tests, stops_early=True)
    for test, call in calls:
        seen(evidence, test, call)
    return judge(mutant, Evidence(evidence.passed, evidence.failures, 0.0))


def test_a_mutant_is_noticed_when_every_listed_test_fails() -> None:
    verdict = verdict_of((TEST, failing), (OTHER, failing))
    assert (verdict.is_noticed, verdict.noticed, verdict.blind) == (True, (TEST, OTHER), ())


def test_a_listed_test_that_does_not_notice_it_is_named() -> None:
    verdict = verdict_of((TEST, failing), (OTHER, lambda: None))
    assert (verdict.is_noticed, verdict.noticed, verdict.blind) == (False, (TEST,), (f"NOT by {OTHER}",))


def test_a_listed_test_that_is_skipped_does_not_notice_it() -> None:
    verdict = verdict_of((TEST, failing), (OTHER, lambda: pytest.skip("no server")))
    assert (verdict.is_noticed, verdict.blind) == (False, (f"NOT by {OTHER}: it was skipped",))


def test_one_case_of_a_parametrized_test_has_to_fail() -> None:
    verdict = verdict_of((f"{TEST}[a]", lambda: None), (f"{TEST}[b]", failing), (OTHER, failing))
    assert (verdict.is_noticed, verdict.noticed) == (True, (f"{TEST}[b]", OTHER))


@pytest.mark.parametrize(
    ("calls", "code", "message"),
    [
        ([failing, failing], 0, "all 1 mutants are noticed by all of their tests"),
        ([failing, lambda: None], 1, "1 of 1 mutants are not noticed by all of their tests: some"),
        ([lambda: None, lambda: None], 1, "1 of 1 mutants survive: some"),
        ([failing, lambda: {}["key"]], 1, "1 of 1 mutants prove nothing: some"),
    ],
)
def test_the_run_succeeds_only_when_every_mutant_is_noticed_by_all_of_its_tests(
    capsys: pytest.CaptureFixture[str], calls: list[Callable[[], Any]], code: int, message: str
) -> None:
    assert sum_up([verdict_of(*zip((TEST, OTHER), calls, strict=True))]) == code
    assert capsys.readouterr().out.strip() == message


def test_a_test_whose_name_begins_like_that_of_a_listed_one_is_another() -> None:
    verdict = verdict_of((f"{TEST}_too", failing), (OTHER, failing))
    assert verdict.blind == (f"NOT by {TEST}: it was skipped",)


def test_failures_after_the_first_of_a_listed_test_are_omitted() -> None:
    subject = Witness((TEST, OTHER), stops_early=True)
    item: Any = SimpleNamespace(nodeid=f"{TEST}[b]")
    subject.pytest_runtest_setup(item)
    seen(subject, f"{TEST}[a]", failing)
    with pytest.raises(pytest.skip.Exception):
        subject.pytest_runtest_setup(item)
    item.nodeid = OTHER
    subject.pytest_runtest_setup(item)


def test_the_catalogue_and_the_folder_hold_the_same_mutants_and_each_entry_names_a_test() -> None:
    names = [mutant.plugin for mutant in MUTANTS]
    assert sorted(names) == sorted({path.stem for path in FOLDER.glob("*.py")} - NO_MUTANTS)
    for mutant in MUTANTS:
        assert mutant.tests, mutant.plugin
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert name, f"{mutant.plugin}: {test} is a whole file"
            source = (FOLDER.parents[1] / path).read_text("utf-8")
            assert f"def {name.partition('[')[0]}(" in source, f"{mutant.plugin}: there is no {test}"
