"""The frame of the runnable examples: the catalogue, comparing, and what the command does with a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pytest
from lockgate_devtools.drill.model import Target
from lockgate_proto.messages import JobGraph

from examples import __main__ as command
from examples.frame import Example, NotHere, Place, Scene, Step, Wrong, catalogue
from examples.frame import run as running
from examples.frame import stage as staging
from examples.frame.example import compare
from examples.frame.shares import of_the_day
from lockgate.errors import UserError


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs end at once, with what the check says."""

    def run(_name: str, example: Example, *_: object) -> list[str]:
        return example.check(Place(tmp_path, tmp_path, 0))

    monkeypatch.setattr(command, "run", run)


def _example(*problems: str) -> Example:
    return Example("one line", lambda _: 0, lambda _: pytest.fail("no job is made"), lambda _: list(problems))


@pytest.mark.spark
@pytest.mark.parametrize("name", catalogue.names())
def test_every_example_has_one_line_and_a_pipeline(name: str, tmp_path: Path) -> None:
    example = catalogue.find(name)
    assert example.line
    assert "\n" not in example.line
    place = Place(tmp_path / "input", tmp_path / "output", 1)
    assert isinstance(example.pipeline(place).graph(), JobGraph)


@pytest.mark.spark
def test_the_list_names_every_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert tuple(line.split()[0] for line in listed) == catalogue.names()


def test_an_unknown_name_is_one_sentence_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["nonsense"]) == 2
    error = capsys.readouterr().err
    assert "nonsense" in error
    assert "word_count" in error


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(("problems", "code"), [((), 0), (("it is wrong",), 1)])
def test_the_exit_code_is_the_verdict(
    problems: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue, "find", lambda _: _example(*problems))
    assert command.main(["any", "--seed", "7"]) == code
    shown = capsys.readouterr().out
    assert "seed 7" in shown
    assert all(problem in shown for problem in problems)


@pytest.mark.usefixtures("nothing_runs")
def test_one_wrong_example_among_right_ones_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"good": _example(), "bad": _example("it is wrong")}
    monkeypatch.setattr(catalogue, "find", found.__getitem__)
    assert command.main(["bad", "good"]) == 1


def test_so_many_days_in_a_row_see_each_item_once() -> None:
    items = range(22)
    days = [of_the_day(items, 3, (20_000 + day) * 86_400 + 5) for day in range(3)]
    assert sorted(item for share in days for item in share) == list(items)
    assert {len(share) for share in days} == {7, 8}
    assert of_the_day(items, 3, 20_003 * 86_400.0) == days[0]
    assert of_the_day(items, 1, 20_001 * 86_400.0) == items
    assert not of_the_day(items[:1], 3, 20_000 * 86_400.0), "the first day's share of too few"


@pytest.mark.usefixtures("nothing_runs")
def test_a_share_is_a_part_of_all_and_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue, "find", lambda _: _example())
    monkeypatch.setattr(command.time, "time", lambda: 0.0)
    assert command.main(["all", "--share", "3", "--kill", "either", "--seed", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    wanted = catalogue.names()[::3]
    assert shown[0] == f"today's share, one of 3: {', '.join(wanted)}"
    assert sum(line.startswith("verdict: RIGHT") for line in shown) == len(wanted)


def test_either_kill_is_drawn_by_the_seed_and_both_come_up() -> None:
    drawn = {command._target("either", name, 1) for name in catalogue.names()}
    assert drawn == {Target.LEADER, Target.TASKMANAGER}
    assert command._target("either", "word_count", 1) is command._target("either", "word_count", 1)
    assert command._target(None, "word_count", 1) is None


class _Ground(contextlib.AbstractContextManager["_Ground"]):
    """Stands in for a cluster, its client and its arena."""

    made: ClassVar[list[_Ground]] = []
    is_whole = True

    def __init__(self, *_: object, **options: object) -> None:
        self.options = options
        self.is_over = False
        self.coordinators, self.zookeeper, self.credentials = (), "", lambda: None
        self.client, self.task_managers = self, ()
        if "taskmanager" in options:
            self.made.append(self)

    def __exit__(self, *_: object) -> None:
        self.is_over = True

    def cluster(self) -> _Ground:
        return self

    def survey(self, _: object) -> None:
        pass

    def wait_complete(self, _: float) -> bool:
        return self.is_whole


@pytest.fixture
def grounds(monkeypatch: pytest.MonkeyPatch) -> list[_Ground]:
    """The clusters that stages have started."""
    for name in ("LocalCluster", "Client", "ProcessArena"):
        monkeypatch.setattr(staging, name, _Ground)
    monkeypatch.setattr(_Ground, "made", [])
    return _Ground.made


def test_examples_of_one_kind_share_a_cluster_and_others_have_their_own(grounds: list[_Ground]) -> None:
    with staging.Stage(lambda _: None) as stage:
        keys = []
        for name, slots in (("a", 2), ("b", 2), ("a", 2), ("c", 3)):
            key, folder = stage.enter(name, dataclasses.replace(_example(), cluster={"slots": slots}))
            assert not folder.exists()
            stage.arena()
            keys.append(key)
        assert keys == ["a", "b", "a-2", "c"], "a key names one job"
        assert [ground.options["slots"] for ground in grounds] == [2, 3]
        assert [ground.is_over for ground in grounds] == [True, False]
    assert [ground.is_over for ground in grounds] == [True, True]


def test_after_a_wrong_result_the_next_example_has_another_cluster(grounds: list[_Ground]) -> None:
    with staging.Stage(lambda _: None) as stage:
        for _ in range(2):
            stage.enter("a", _example())
            stage.arena()
            stage.spoil()
    assert [ground.is_over for ground in grounds] == [True, True]


def test_a_cluster_that_does_not_recover_is_an_error(grounds: list[_Ground], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Ground, "is_whole", False)
    with staging.Stage(lambda _: None) as stage:
        for name in ("a", "b"):
            stage.enter(name, _example())
            if name == "b":
                with pytest.raises(UserError, match="not whole and idle"):
                    stage.arena()
            else:
                stage.arena()
    assert len(grounds) == 1


def test_a_result_that_cannot_be_read_is_wrong(tmp_path: Path) -> None:
    def check(_: Place) -> list[str]:
        raise FileNotFoundError("words.db")

    example = Example("one line", lambda _: 0, lambda _: pytest.fail("no job is made"), check)
    assert "words.db" in running._judge(example, Place(tmp_path, tmp_path, 0), print)[0]


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(("asked", "code"), [("all", 0), ("needy", 2)])
def test_an_example_that_cannot_run_here_is_skipped_in_all_and_an_error_by_name(
    asked: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(_: Place) -> list[str]:
        raise NotHere("no database is installed")

    monkeypatch.setattr(catalogue, "names", lambda: ("needy",))
    monkeypatch.setattr(catalogue, "find", lambda _: dataclasses.replace(_example(), check=check))
    assert command.main([asked]) == code
    assert "no database is installed" in "".join(capsys.readouterr())


def test_the_key_and_the_errors_of_a_step_are_returned(tmp_path: Path) -> None:
    client: Any = None
    scene = Scene(client, "before", Place(tmp_path, tmp_path, 0), print)
    assert (
        running._begun(Step(0.5, "hands over", lambda item: f"{item.key}-changed"), scene).result(120)
        == "before-changed"
    )

    def spot(_: Scene) -> None:
        raise Wrong("it was not refused")

    with pytest.raises(Wrong):
        running._begun(Step(0.5, "looks", spot), scene).result(120)


def test_the_summary_of_a_result_is_printed_when_it_is_right(tmp_path: Path) -> None:
    printed: list[str] = []
    place = Place(tmp_path, tmp_path, 0)
    with_summary = dataclasses.replace(_example(), summary=lambda _: "7 rows")
    assert not running._judge(with_summary, place, printed.append)
    assert running._judge(
        dataclasses.replace(_example("it is wrong"), summary=lambda _: "8 rows"), place, printed.append
    )
    assert printed == ["  7 rows"]


def test_compare_finds_missing_wrong_and_extra_entries() -> None:
    assert compare({"a": 1}, {"a": 1}, "count of") == []
    assert len(compare({"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 2, "d": 4}, "count of")) == 3


def test_compare_with_nothing_is_not_right() -> None:
    assert compare({}, {}, "count of")


def test_compare_cuts_long_lists() -> None:
    listed = compare({}, dict.fromkeys(range(100), 1), "count of", most=3)
    assert len(listed) == 4
    assert "97 more of 100" in listed[-1]


def test_an_example_that_does_not_exist_is_a_user_error() -> None:
    with pytest.raises(UserError):
        catalogue.find("nonsense")


def test_the_page_lists_the_examples_as_the_program_does(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/examples.md").read_text(encoding="utf-8")
    assert command.main([]) == 0
    assert f"$ python -m examples\n{capsys.readouterr().out}\n$ " in page
