"""Watched folders: what is new is found whatever its times say, and what is old costs nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import FileFormat, FileSource, SplitState
from lockgate_taskmanager.spark.sources import growth as growth_module
from lockgate_taskmanager.spark.sources.folders import LOOK_THROUGH_NS, TICK_NS, FolderWatch
from lockgate_taskmanager.spark.sources.growth import LONGEST_MS, Growth
from lockgate_taskmanager.spark.sources.lines import LineSource
from lockgate_taskmanager.spark.sources.listing import discover
from lockgate_taskmanager.spark.sources.parquet import ParquetSource
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.task.known_splits import KnownSplits
from lockgate_taskmanager.task.program import UserError

LATER_NS = 10**19  # every time that a file system has given is long ago


def any_name(_: str) -> bool:
    return True


def looked(watch: FolderWatch, known: set[str], unix_ns: int) -> list[str]:
    found = watch.fresh(known, any_name, unix_ns)
    known.update(found)
    return found


def test_a_folder_in_which_nothing_has_changed_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for number in range(5):
        (tmp_path / "sub" / f"{number}.txt").touch()
    watch, known = FolderWatch(str(tmp_path)), set[str]()
    assert len(looked(watch, known, LATER_NS)) == 5
    assert looked(watch, known, LATER_NS + 1) == []
    reads = watch.folders_read
    assert looked(watch, known, LATER_NS + 2) == []
    assert watch.folders_read == reads
    (tmp_path / "sub" / "new.txt").touch()
    assert looked(watch, known, LATER_NS + 3) == ["sub/new.txt"]
    assert watch.folders_read == reads + 1, "the other folder has not changed"


def test_a_late_file_with_an_older_time_is_found(tmp_path: Path) -> None:
    watch, known = FolderWatch(str(tmp_path)), set[str]()
    (tmp_path / "b.txt").touch()
    assert looked(watch, known, LATER_NS) == ["b.txt"]
    assert looked(watch, known, LATER_NS + 1) == []
    (tmp_path / "a.txt").touch()
    os.utime(tmp_path / "a.txt", (1, 1))
    assert looked(watch, known, LATER_NS + 2) == ["a.txt"]


def test_files_not_taken_are_found_again(tmp_path: Path) -> None:
    """A Parquet file without a footer is skipped until it is complete, which changes no folder's time."""
    (tmp_path / "a").touch()
    watch = FolderWatch(str(tmp_path))
    assert [watch.fresh(set(), any_name, LATER_NS + number) for number in range(3)] == [["a"]] * 3


def test_a_folder_that_was_just_modified_is_read_again(tmp_path: Path) -> None:
    """The next file may leave the same time."""
    watch, known = FolderWatch(str(tmp_path)), set[str]()
    (tmp_path / "a").touch()
    modified_ns = tmp_path.stat().st_mtime_ns
    assert looked(watch, known, modified_ns + TICK_NS) == ["a"]
    assert looked(watch, known, modified_ns + TICK_NS) == []
    (tmp_path / "b").touch()
    os.utime(tmp_path, ns=(modified_ns, modified_ns))
    assert looked(watch, known, modified_ns + TICK_NS) == ["b"]


def test_a_time_that_was_put_back_hides_a_file_no_longer_than_until_the_next_full_look(tmp_path: Path) -> None:
    watch, known = FolderWatch(str(tmp_path)), set[str]()
    assert [looked(watch, known, LATER_NS + number) for number in range(2)] == [[], []]
    modified_ns = tmp_path.stat().st_mtime_ns
    (tmp_path / "a").touch()
    os.utime(tmp_path, ns=(modified_ns, modified_ns))
    assert looked(watch, known, LATER_NS + 3) == []
    assert looked(watch, known, LATER_NS + LOOK_THROUGH_NS) == ["a"]
    (tmp_path / "b").touch()
    assert looked(watch, known, 0) == ["b"], "the clock was put back"


def test_removed_folders_and_hidden_names(tmp_path: Path) -> None:
    for name in ("gone", ".hidden", "_staging", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").touch()
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    watch, known = FolderWatch(str(tmp_path)), set[str]()
    assert looked(watch, known, LATER_NS) == ["gone/a.txt", "kept/a.txt"]
    (tmp_path / "gone" / "a.txt").unlink()
    (tmp_path / "gone").rmdir()
    (tmp_path / "kept" / "b.txt").touch()
    assert looked(watch, known, LATER_NS + 1) == ["kept/b.txt"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "date", "make", "look"]),
        st.integers(0, 5),
        st.sampled_from(["", "x/", "x/y/"]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@example([("add", 0, ""), ("look", 0, ""), ("add", 1, ""), ("date", 1, "")])
@given(steps)
def test_nothing_is_missed_whatever_comes_and_goes(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, int, str]]
) -> None:
    root = tmp_path_factory.mktemp("in")
    watch, known, now_ns = FolderWatch(str(root)), set[str](), LATER_NS
    for what, number, folder in [*plan, ("look", 0, "")]:
        file = root / f"{folder}{number}.txt"
        if what == "make":
            file.parent.mkdir(parents=True, exist_ok=True)
        elif what == "add" and file.parent.exists():
            file.touch()
        elif what == "remove":
            file.unlink(missing_ok=True)
        elif what == "date" and file.exists():
            os.utime(file, (number, number))
        elif what == "look":
            now_ns += 1
            there = {str(path.relative_to(root)) for path in root.rglob("*.txt")}
            assert watch.fresh(known, any_name, now_ns) == sorted(there - known)
            known |= there


def test_a_file_is_looked_at_less_often_the_longer_it_has_not_grown() -> None:
    growth, looks, now_ms = Growth(1000), [], 0
    growth.add("a")
    while now_ms < 48 * 3_600_000:
        for name in growth.due(now_ms):
            growth.looked(name, False, now_ms)
            looks.append(now_ms)
        now_ms += 1000
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert gaps[:9] == [1000] * 9
    assert all(gap <= max(1000, at // 10 + 1000) for at, gap in zip(looks, gaps, strict=False))
    assert LONGEST_MS / 2 <= max(gaps) <= LONGEST_MS
    assert len(looks) < 1000, "instead of 172,800"


def test_a_file_that_grows_is_looked_at_in_each_poll_again() -> None:
    growth = Growth(1000)
    growth.add("a")
    assert growth.due(0) == ["a"]
    growth.looked("a", False, 0)
    assert growth.due(999) == []
    assert growth.due(500_000) == ["a"]
    growth.looked("a", False, 500_000)
    assert growth.due(524_999) == []
    assert growth.due(550_000) == ["a"]
    growth.looked("a", True, 550_000)
    assert growth.due(551_000) == ["a"]


def test_a_file_quiet_before_the_attempt_is_checked_once_and_then_rarely() -> None:
    growth = Growth(1000)
    growth.add("a")
    growth.add("b")
    growth.looked("a", False, 0, quiet_ms=3_600_000)
    growth.looked("b", False, 0, quiet_ms=-5000)
    growth.due(0)
    assert growth.due(1000) == ["b"], "its time lies in the future, which says nothing"
    assert growth.due(179_999) == []
    assert growth.due(360_000) == ["a"]


def test_files_that_arrived_together_are_not_polled_together_forever() -> None:
    growth, most = Growth(1000), 0
    for number in range(2000):
        growth.add(f"{number}")
    for now_ms in range(0, 3_600_000, 1000):
        names = growth.due(now_ms)
        most = max(most, len(names)) if now_ms > 1_800_000 else 0
        for name in names:
            growth.looked(name, False, now_ms)
    assert most < 200


def test_no_poll_looks_at_too_many_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that are left come with the next one, at once."""
    monkeypatch.setattr(growth_module, "AT_ONCE", 3)
    for number in range(7):
        (tmp_path / f"{number}").write_text(f"{number}\n")
    source = LineSource(text(tmp_path), ())
    source.assign(*discover(text(tmp_path), ()))
    source.spec()
    found: list[bytes] = []
    for now_ms in range(10):
        reading = source.read(100, now_ms)
        found += reading.content if isinstance(reading, Reading) else []
    assert sorted(b"".join(found).split()) == [str(number).encode() for number in range(7)]


def text(folder: Path, **more: object) -> FileSource:
    return FileSource(path=str(folder), format=FileFormat.TEXT, continuous=True, poll_interval_ms=1000, **more)  # type: ignore[arg-type]


def test_lines_appended_to_an_old_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    source = LineSource(text(tmp_path), ())
    source.assign(*discover(text(tmp_path), ()))
    source.spec()
    assert isinstance(source.read(100, 0), Reading)
    for now_ms in range(1000, 3_600_000, 1000):
        source.read(100, now_ms)
    with (tmp_path / "a").open("a") as file:
        file.write("2\n")
    found = [item for item in (source.read(100, now_ms) for now_ms in range(3_600_000, 4_200_001, 1000)) if item]
    contents = [reading.content for reading in found if isinstance(reading, Reading)]
    assert contents == [[b"2\n"]]


def test_lines_appended_between_two_attempts_are_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    os.utime(tmp_path / "a", (1, 1))
    source = LineSource(text(tmp_path), ())
    source.assign([SplitState("a", 2, -1)], False)
    source.spec()
    found = source.read(100, 0)
    assert isinstance(found, Reading)
    assert found.content == [b"2\n"]


def test_the_files_of_a_watched_folder_are_listed_once(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.log"):
        (tmp_path / name).write_text("x\n")
    known = KnownSplits(["a.txt"])
    splits, is_complete = discover(text(tmp_path, include="*.txt"), known)
    assert [(split.split, split.end) for split in splits] == [("b.txt", -1)]
    assert not is_complete
    known.update(split.split for split in splits)
    assert discover(text(tmp_path, include="*.txt"), known)[0] == ()
    (watch,) = known.notes.values()
    assert isinstance(watch, FolderWatch)


@pytest.mark.parametrize("continuous", [True, False])
def test_a_name_that_is_not_text_is_refused_with_a_message(tmp_path: Path, continuous: bool) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.txt")).touch()
    (tmp_path / "b.csv").touch()
    for kind in (FileFormat.TEXT, FileFormat.PARQUET):
        source = replace(text(tmp_path), continuous=continuous, format=kind)
        with pytest.raises(UserError, match="is not UTF-8; rename it"):
            discover(source, ())
    with pytest.raises(UserError, match="is not UTF-8; rename it"):
        ParquetSource(replace(text(tmp_path), format=FileFormat.PARQUET), None).spec()
    kept = replace(text(tmp_path, include="*.csv"), continuous=continuous)
    assert [split.split for split in discover(kept, ())[0]] == ["b.csv"]


def linked(folder: Path, **links: str) -> None:
    """Links below a folder by their paths, with two underscores for a slash."""
    for name, target in links.items():
        (folder / name.replace("__", "/")).symlink_to(target)


@pytest.mark.parametrize("continuous", [True, False])
def test_a_link_is_followed_but_nothing_is_read_twice_or_without_end(tmp_path: Path, continuous: bool) -> None:
    root, outside = tmp_path / "in", tmp_path / "outside"
    for file in ("in/day1/a.txt", "in/day2/b.txt", "in/.old/c.txt", "outside/x/d.txt", "other/e.txt", "other/f.log"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("1\n")
    linked(root, latest="day2", up="..", loop=".", itself="itself", gone="nowhere", day1__back="..", once="/nowhere")
    linked(root, kept=".old", far=str(outside), latest_file="day1/a.txt", log="../other/f.log", again="day1/x.log")
    (root / "day1" / "x.log").touch()
    linked(outside, x__round="..", newest="x", other="../other", home="../in/day1")
    (tmp_path / "root").symlink_to(root)
    expected = [
        "day1/a.txt", "day1/x.log", "day2/b.txt", "far/other/e.txt", "far/other/f.log", "far/x/d.txt", "kept/c.txt",
        "log",
    ]  # fmt: skip
    for path in (root, tmp_path / "root"):
        found, _ = discover(replace(text(path), continuous=continuous), ())
        assert [split.split for split in found] == expected
    found, _ = discover(replace(text(root, include="l*"), continuous=continuous), ())
    assert [split.split for split in found] == ["latest_file", "log"], "they are not read under their own names"


@pytest.mark.parametrize("continuous", [True, False])
def test_linked_folders_that_lead_to_each_other_end(tmp_path: Path, continuous: bool) -> None:
    for name in ("in", "a/sub", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "1.txt").write_text("1\n")
    (tmp_path / "b" / "2.txt").write_text("2\n")
    linked(tmp_path, in__a="../a", in__b="../b", a__sub__b="../../b", b__a="../a/sub")
    found, _ = discover(replace(text(tmp_path / "in"), continuous=continuous), ())
    assert [split.split for split in found] == ["a/1.txt", "a/sub/b/2.txt", "b/2.txt"]


def test_a_link_that_is_left_out_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    linked(tmp_path, loop=".")
    watch = FolderWatch(str(tmp_path))
    assert [watch.fresh((), any_name, number * LOOK_THROUGH_NS) for number in range(3)] == [[]] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"the link {tmp_path}/loop is left out: it leads to what is read anyway"
    ]
