"""Byte ranges of text files: every line once, whatever the batch size, across files and restarts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from lockgate_common.backlog import Backlog
from lockgate_common.storage import Location
from lockgate_proto.messages import FailureCause, FileFormat, FileSource, SplitState
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.spark.sources import lines, listing
from lockgate_taskmanager.spark.sources.lines import LineSource
from lockgate_taskmanager.spark.sources.listing import SourceUnavailable, discover
from lockgate_taskmanager.spark.sources.read_ahead import ReadAhead
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.task.program import Exhausted, Idle, UserError


def text(path: Path, **more: object) -> FileSource:
    return FileSource(path=str(path), format=FileFormat.TEXT, **more)  # type: ignore[arg-type]


def opened(source: FileSource, columns: tuple[str, ...] = ("value",)) -> LineSource:
    reader = LineSource(source, columns)
    reader.spec()
    reader.assign(*discover(source, ()))
    return reader


def read_all(reader: LineSource, budget: int = 10, now_ms: int = 0) -> bytes:
    found = b""
    while isinstance(batch := reader.read(budget, now_ms), Reading):
        assert all(piece.endswith(b"\n") for piece in batch.content)
        found += b"".join(batch.content)
    return found


@pytest.mark.parametrize("budget", [1, 2, 7, 16, 1000])
def test_every_line_once_at_any_batch_size(tmp_path: Path, budget: int) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n\nfour is longer\n")
    (tmp_path / "b.txt").write_bytes(b"no newline at the end")
    (tmp_path / "c.txt").write_bytes(b"")
    (tmp_path / "d.txt").write_bytes(b"crlf\r\nlast\r\n")
    found = read_all(opened(text(tmp_path)), budget)
    assert found == b"one\ntwo\n\nfour is longer\nno newline at the end\ncrlf\r\nlast\r\n"


def test_the_end_is_reached_only_when_no_split_will_come(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    reader = LineSource(text(tmp_path), ())
    reader.spec()
    assert isinstance(reader.read(10, 0), Idle)
    reader.assign((SplitState("a", 0, 2),), complete=True)
    assert isinstance(reader.read(10, 0), Reading)
    assert isinstance(reader.read(10, 0), Exhausted)


def test_the_backlog_is_what_was_not_read_of_the_known_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n22\n")
    (tmp_path / "b").write_text("333\n")
    reader = opened(text(tmp_path))
    assert reader.unread(0) == Backlog(bytes=9, splits=2)
    reader.read(2, 0)
    assert reader.unread(0) == Backlog(bytes=7, splits=2)
    second = LineSource(text(tmp_path), ())
    second.spec()
    second.assign(reader.splits(), complete=True)
    assert second.unread(0) == Backlog(bytes=7, splits=2)
    read_all(second)
    assert second.unread(0) == Backlog(bytes=0, splits=0)


def test_the_backlog_of_watched_files_is_known_once_their_sizes_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "b").write_text("22\nhal")
    reader = opened(text(tmp_path, continuous=True, poll_interval_ms=1))
    assert reader.unread(0) == Backlog(splits=2)
    reader.read(1, 0)
    assert reader.unread(0) == Backlog(bytes=6, splits=1)
    read_all(reader)
    assert reader.unread(0) == Backlog(bytes=3, splits=0), "a line that is still being written"
    with (tmp_path / "b").open("a") as file:
        file.write("f\nmore\n")
    (tmp_path / "a").unlink()
    found = reader.read(1, 10_000)
    assert isinstance(found, Reading)
    assert reader.unread(0) == Backlog(bytes=5, splits=1)
    read_all(reader, now_ms=20_000)
    assert reader.unread(0) == Backlog(bytes=0, splits=0)


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_restored_source_continues_at_its_offset(tmp_path: Path, stop_after: int) -> None:
    (tmp_path / "a").write_text("1\n22\n333\n")
    (tmp_path / "b").write_text("4444\n55555\n")
    first = opened(text(tmp_path))
    found = b"".join(b"".join(first.read(4, 0).content) for _ in range(stop_after))  # type: ignore[union-attr]
    second = LineSource(text(tmp_path), ())
    second.spec()
    second.assign(first.splits(), complete=True)
    assert found + read_all(second, 4) == b"1\n22\n333\n4444\n55555\n"


def test_rows_are_counted_and_many_small_files_make_one_batch(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}").write_text(f"{number}\n")
    batch = opened(text(tmp_path)).read(10_000, 0)
    assert isinstance(batch, Reading)
    assert (batch.rows, len(batch.content), batch.full) == (50, 50, False)


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfx\ny\n")
    assert read_all(opened(text(tmp_path))) == b"x\ny\n"


def test_a_bounded_read_ends_at_the_size_seen_first(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x\n")
    reader = opened(text(tmp_path))
    with path.open("a") as file:
        file.write("later\n")
    assert read_all(reader) == b"x\n"


def test_continuous_reading_takes_appended_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x\nhal")
    reader = opened(text(tmp_path, continuous=True, poll_interval_ms=100))
    assert read_all(reader, 100, now_ms=0) == b"x\n"
    with path.open("a") as file:
        file.write("f\nmore")
    assert read_all(reader, 100, now_ms=50) == b"", "it looks again after the poll interval"
    assert read_all(reader, 100, now_ms=100) == b"half\n"
    assert reader.splits() == (SplitState("a", 7, -1, seen=11),)
    assert isinstance(reader.read(100, 150), Idle)


def test_continuous_reading_never_ends_and_finds_new_files(tmp_path: Path) -> None:
    source = text(tmp_path, continuous=True)
    (tmp_path / "a").write_text("x\n")
    reader = opened(source)
    assert read_all(reader) == b"x\n"
    (tmp_path / "b").write_text("y\n")
    splits, complete = discover(source, ("a",))
    assert (splits, complete) == ((SplitState("b", 0, -1),), False)
    reader.assign(splits, complete)
    assert read_all(reader) == b"y\n"


def test_a_read_file_may_be_removed_and_an_unread_one_may_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x\n")
    reader = opened(text(tmp_path, continuous=True))
    assert read_all(reader) == b"x\n"
    path.unlink()
    assert isinstance(reader.read(10, 5000), Idle)
    assert isinstance(reader.read(10, 10_000), Idle)
    path.write_text("unread\n")
    bounded = opened(text(tmp_path))
    path.unlink()
    with pytest.raises(UserError, match="a was removed"):
        bounded.read(10, 0)


@pytest.mark.parametrize("continuous", [False, True])
def test_an_empty_file_that_is_deleted_after_discovery_is_no_error(tmp_path: Path, continuous: bool) -> None:
    source = text(tmp_path, continuous=continuous)
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_text("x\n")
    reader = opened(source)
    (tmp_path / "a").unlink()
    assert read_all(reader) == b"x\n"
    restored = LineSource(source, ())
    restored.spec()
    restored.assign(reader.splits(), complete=not continuous)
    assert isinstance(restored.read(10, 0), Idle if continuous else Exhausted)


def test_a_growing_file_that_vanishes_before_it_is_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\n")
    (tmp_path / "b").write_text("x\ny\n")
    reader = opened(text(tmp_path, continuous=True))
    assert isinstance(reader.read(2, 0), Reading)
    (tmp_path / "b").unlink()
    with pytest.raises(UserError, match="b was removed"):
        read_all(reader)


def test_a_split_assigned_twice_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\n")
    source = text(tmp_path)
    reader = opened(source)
    assert isinstance(reader.read(2, 0), Reading)
    reader.assign(*discover(source, ()))
    assert read_all(reader) == b"y\n"
    reader.assign(*discover(source, ()))
    assert isinstance(reader.read(2, 0), Exhausted)


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x\ny\nz\n")
    bounded, growing = opened(text(tmp_path)), opened(text(tmp_path, continuous=True, poll_interval_ms=1))
    assert read_all(growing) == b"x\ny\nz\n"
    os.truncate(path, 2)
    with pytest.raises(UserError, match="has shrunk to 2 bytes"):
        bounded.read(100, 0)
    with pytest.raises(UserError, match="has shrunk to 2 bytes; it was read to 6"):
        growing.read(100, 10)


@pytest.mark.parametrize("budget", [1, 4, 5, 100])
def test_what_a_growing_file_loses_while_the_job_is_down_is_an_error(tmp_path: Path, budget: int) -> None:
    path, source = tmp_path / "a", text(tmp_path, continuous=True, poll_interval_ms=1)
    path.write_text("1\n2\n3\nhal")
    first = opened(source)
    first.read(budget, 0)
    os.truncate(path, 8)
    with pytest.raises(UserError, match=r"a has shrunk to 8 bytes; it was 9 bytes: append to files"):
        opened_again(source, first).read(100, 0)
    path.unlink()
    with pytest.raises(UserError, match="a was removed before it was read completely"):
        opened_again(source, first).read(100, 0)


def opened_again(source: FileSource, before: LineSource) -> LineSource:
    """Restored from what the snapshot has of `before`."""
    reader = LineSource(source, ())
    reader.assign(before.splits(), complete=False)
    reader.spec()
    return reader


def test_a_growing_file_that_was_read_may_vanish_or_be_read_on_after_a_restart(tmp_path: Path) -> None:
    path, source = tmp_path / "a", text(tmp_path, continuous=True, poll_interval_ms=1)
    path.write_text("1\n2\n")
    first = opened(source)
    assert isinstance(first.read(2, 0), Reading)
    again = opened_again(source, first)
    assert read_all(again) == b"2\n", "the file is as long as it was"
    assert again.splits() == (SplitState("a", 4, -1),)
    path.unlink()
    assert isinstance(opened_again(source, again).read(100, 0), Idle)


def test_a_savepoint_in_front_of_records_read_ahead_knows_the_file_as_long_as_they_are(tmp_path: Path) -> None:
    path, source = tmp_path / "a", text(tmp_path, continuous=True, poll_interval_ms=1)
    path.write_text("1\n2\n")
    inner = opened(source)
    ahead = ReadAhead(inner)
    ahead.read(100, 0)
    assert inner.splits() == (SplitState("a", 4, -1),)
    ahead.freeze(1, is_savepoint=True)
    assert ahead.stored(inner.splits()) == (SplitState("a", 0, -1, seen=4),)


def csv_source(path: Path, **options: str) -> FileSource:
    return FileSource(path=str(path), format=FileFormat.CSV, schema="a INT, b STRING", options=options)


def test_a_csv_header_is_taken_off_every_file(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"a,b\n1,x\n2,y\n")
    (tmp_path / "2").write_bytes(b'\xef\xbb\xbfA, "b"\r\n3,z')
    (tmp_path / "3").write_bytes(b"a,b")
    reader = opened(csv_source(tmp_path, header="true"), ("a", "b"))
    assert read_all(reader, 5) == b"1,x\n2,y\n3,z\n"


@pytest.mark.parametrize("budget", [10, 50_000])
def test_any_number_of_files_with_but_a_header_hide_no_row_behind_them(tmp_path: Path, budget: int) -> None:
    for number in range(2_000):
        (tmp_path / f"{number:04}").write_bytes(b"a,b" + b"\n" * (number % 2))
    (tmp_path / "9999").write_bytes(b"a,b\n1,x\n2,y\n")
    reader = opened(csv_source(tmp_path, header="true"), ("a", "b"))
    assert read_all(reader, budget) == b"1,x\n2,y\n"
    assert isinstance(reader.read(budget, 0), Exhausted)


def test_a_csv_header_that_does_not_fit_the_schema_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"b;a\n1;x\n")
    reader = opened(csv_source(tmp_path, header="true", sep=";"), ("a", "b"))
    with pytest.raises(UserError, match=r"header of 1 is b, a, but the schema says a, b"):
        reader.read(100, 0)


@pytest.mark.parametrize(
    "option", [{"wholeText": "true"}, {"lineSep": "x"}, {"encoding": "latin1"}, {"compression": "gzip"}]
)
def test_options_that_cannot_be_kept_are_refused(tmp_path: Path, option: dict[str, str]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(option.values()))}|{next(iter(option))}"):
        LineSource(csv_source(tmp_path, **option), ("a", "b"))


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"header": "yes"}, "the option header is 'yes'; it must be true or false"),
        ({"HEADER": "1"}, "the option header is '1'; it must be true or false"),
        ({"multiLine": "on"}, "the option multiLine is 'on'; it must be true or false"),
        ({"ignoreLeadingWhiteSpace": ""}, "the option ignoreLeadingWhiteSpace is ''; it must be true or false"),
        ({"quote": "''"}, "the option quote is \"''\"; it must be one character, or empty for none"),
        ({"escape": "ab"}, "the option escape is 'ab'; it must be one character"),
        ({"comment": "//"}, "the option comment is '//'; it must be one character"),
        ({"sep": ""}, "the option sep is ''; give what divides two values"),
        ({"delimiter": "\\x"}, "the option sep is .*; give what divides two values"),
        ({"multiLine": "true", "unescapedQuoteHandling": "SKIP_VALUE"}, "must be STOP_AT_DELIMITER"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, option: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=f"the source {tmp_path}: .*{why}"):
        LineSource(csv_source(tmp_path, **option), ("a", "b"))


@pytest.mark.parametrize("separator", ["\\t", "\t"])
def test_options_are_understood_as_spark_does(tmp_path: Path, separator: str) -> None:
    (tmp_path / "x").write_text("a\tb\n1\tx\n")
    for header in ("TRUE", "True"):
        reader = opened(csv_source(tmp_path, header=header, sep=separator, quote=""), ("a", "b"))
        assert read_all(reader) == b"1\tx\n"
    assert read_all(opened(csv_source(tmp_path, header="FALSE"), ("a", "b"))) == b"a\tb\n1\tx\n"


def test_a_first_line_that_is_no_header_is_shown_in_part(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a" * 200_000 + ",b\n1,2\n")
    with pytest.raises(UserError, match=r"the header of x is a{500}, but the schema says a, b"):
        read_all(opened(csv_source(tmp_path, header="true"), ("a", "b")))


def test_multiline_belongs_to_csv(tmp_path: Path) -> None:
    source = FileSource(path=str(tmp_path), format=FileFormat.JSON_LINES, schema="a INT", options={"multiLine": "true"})
    with pytest.raises(UserError, match=r"multiLine.*not supported: files are read line by line"):
        LineSource(source, ("a",))


def test_bytes_that_are_not_utf8_become_replacement_characters(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"fine \xc3\xa9\nbad \xff\xfe\n")
    assert read_all(opened(text(tmp_path))) == "fine é\nbad \ufffd\ufffd\n".encode()


QUOTED = b'a,b\r\n1,"one\r\ntwo ""x"", \\"\r\n2,plain\r\n3,"\n\n"\r\n'


@pytest.mark.parametrize("budget", [1, 7, 20, 1000])
def test_newlines_inside_quotes_end_no_record(tmp_path: Path, budget: int) -> None:
    (tmp_path / "x").write_bytes(QUOTED)
    reader = opened(csv_source(tmp_path, header="true", multiLine="true", escape='"'), ("a", "b"))
    found, rows = b"", 0
    while isinstance(batch := reader.read(budget, 0), Reading):
        assert all(piece.count(b'"') % 2 == 0 for piece in batch.content)
        found += b"".join(batch.content)
        rows += batch.rows
    assert found == b'1,"one\r\ntwo ""x"", \\"\n2,plain\n3,"\n\n"\n'
    assert rows == 3


def test_an_escaped_quote_ends_no_value(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b'1,"a \\" b\nc \\\\"\n2,"d"\n')
    reader = opened(csv_source(tmp_path, multiLine="true"), ("a", "b"))
    pieces = []
    while isinstance(batch := reader.read(1, 0), Reading):
        pieces += batch.content
    assert pieces == [b'1,"a \\" b\nc \\\\"\n', b'2,"d"\n']


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("budget", [1, 7, 10, 1000])
def test_a_quote_within_a_value_is_part_of_it(tmp_path: Path, budget: int, continuous: bool) -> None:
    """It joined two records, or kept a watched file's last ones until there was another one."""
    records = [b'1,5" pipe\n', b'2,"a\nb"\n', b"3,x\n"]
    (tmp_path / "x").write_bytes(b"".join(records))
    reader = opened(replace(csv_source(tmp_path, multiLine="true"), continuous=continuous), ("a", "b"))
    found, rows = b"", 0
    while isinstance(batch := reader.read(budget, 0), Reading):
        found += b"".join(batch.content)
        rows += batch.rows
    assert (found, rows) == (b"".join(records), 3)


def test_an_unclosed_quote_at_the_end_of_a_file_takes_no_record_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b'1,a\n2,"b\n3,c')
    (tmp_path / "y").write_bytes(b'4,"d"\n')
    reader = opened(csv_source(tmp_path, multiLine="true"), ("a", "b"))
    with pytest.raises(UserError, match=r"file x has a record at byte 4 that does not end within 8 bytes: a quote in"):
        read_all(reader, 1000)


def test_a_record_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b'1,"a\n')
    reader = opened(replace(csv_source(tmp_path, multiLine="true"), continuous=True), ("a", "b"))
    assert isinstance(reader.read(100, 0), Idle)
    with (tmp_path / "x").open("ab") as file:
        file.write(b'b"\n2,"c')
    batch = reader.read(100, 10_000)
    assert isinstance(batch, Reading)
    assert batch.content == [b'1,"a\nb"\n']


def test_an_unclosed_quote_is_reported_with_file_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LONGEST_RECORD_BYTES", 64)
    (tmp_path / "x").write_bytes(b'1,a\n2,"b\n' + b"3,c\n" * 100)
    reader = opened(csv_source(tmp_path, multiLine="true"), ("a", "b"))
    with pytest.raises(UserError, match=r"file x has a record at byte 4 that does not end within .* a quote in it"):
        read_all(reader, 4)


def test_an_endless_line_is_reported_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a binary file that lies among others."""
    monkeypatch.setattr(lines, "_LONGEST_LINE_BYTES", 64)
    (tmp_path / "x").write_bytes(b"ab\n" + bytes(1000))
    with pytest.raises(UserError, match=r"file x has a record at byte 3 that does not end within 128 bytes: the file"):
        read_all(opened(text(tmp_path)), 4)


@pytest.mark.parametrize("budget", [1, 5, 1000])
@pytest.mark.parametrize("front", ["\n", "# made by hand\n\n#\n", " \r\n", "\ufeff\n# x\n"])
def test_blank_lines_and_comments_may_stand_in_front_of_a_header(tmp_path: Path, budget: int, front: str) -> None:
    (tmp_path / "x").write_text(f"{front}a,b\n1,x\n", newline="")
    reader = opened(csv_source(tmp_path, header="true", comment="#"), ("a", "b"))
    assert read_all(reader, budget) == b"1,x\n"


def test_discovery_skips_hidden_files_and_descends_into_folders(tmp_path: Path) -> None:
    for name in ("a.txt", "b.log", ".hidden", "_SUCCESS", "sub/c.txt", "_tmp/d.txt", "sub/.x/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x\n")
    splits, complete = discover(text(tmp_path, include="*.txt"), ("a.txt",))
    assert ([split.split for split in splits], complete) == (["sub/c.txt"], True)
    assert [s.split for s in discover(text(tmp_path), ())[0]] == ["a.txt", "b.log", "sub/c.txt"]


def test_a_single_file_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("x\n")
    for path in (str(tmp_path / "a b.txt"), (tmp_path / "a b.txt").as_uri()):
        source = FileSource(path=path, format=FileFormat.TEXT)
        assert discover(source, ())[0] == (SplitState("a b.txt", 0, 2),)
        assert read_all(opened(source)) == b"x\n"


@pytest.mark.parametrize("path", ["/nowhere/at/all", "nosuchscheme://x/y"])
def test_a_path_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(UserError, match=path):
        discover(FileSource(path=path, format=FileFormat.TEXT), ())


@pytest.mark.parametrize("known", [(), ("a",)])
@pytest.mark.parametrize("continuous", [True, False])
def test_a_folder_that_cannot_be_listed_now_is_a_fault_and_a_wrong_one_is_the_authors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...], continuous: bool
) -> None:
    errors: list[OSError] = []

    class Broken:
        def get_file_info(self, what: object) -> object:
            if isinstance(what, str):
                return pafs.FileInfo(what, pafs.FileType.Directory)
            raise errors.pop()

    source = text(tmp_path, continuous=continuous)
    monkeypatch.setattr(listing, "locate", lambda path: Location(path, Broken(), path))
    errors.append(OSError("stale file handle"))
    with pytest.raises(SourceUnavailable, match="cannot be listed: stale file handle") as raised:
        discover(source, known)
    assert cause_of(raised.value) is FailureCause.FAULT
    errors.append(PermissionError("permission denied"))
    with pytest.raises(SourceUnavailable if continuous else UserError, match="cannot be listed: permission denied"):
        discover(source, known)


def test_a_continuous_path_that_has_vanished_is_a_fault(tmp_path: Path) -> None:
    source = text(tmp_path / "gone", continuous=True)
    with pytest.raises(UserError, match="gone does not exist"):
        discover(source, ())
    with pytest.raises(SourceUnavailable, match="gone does not exist"):
        discover(source, ("a",))
    restored = LineSource(source, ())
    restored.assign((SplitState("a", 5, -1),), complete=False)
    with pytest.raises(SourceUnavailable):
        restored.spec()


def test_compressed_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"x")
    with pytest.raises(UserError, match=r"a\.gz is compressed"):
        discover(text(tmp_path), ())


@pytest.mark.parametrize("begun", ["torn line without its end", "n,s\n"])
def test_a_file_with_nothing_to_give_yet_keeps_no_other_waiting(tmp_path: Path, begun: str) -> None:
    """Either a line that is still being written, or nothing but a header; read a file at a time, for event time."""
    (tmp_path / "a").write_text(begun)
    (tmp_path / "b").write_text("n,s\n" * (begun == "n,s\n") + "1,x\n" * 3)
    options = {"header": "true"} if begun == "n,s\n" else {}
    kind = FileFormat.CSV if options else FileFormat.TEXT
    source = FileSource(str(tmp_path), kind, schema="n INT, s STRING", options=options, continuous=True)
    reader = LineSource(source, ("n", "s"), by_split=True)
    reader.spec()
    reader.assign((SplitState("a", 0, -1), SplitState("b", 0, -1)), complete=False)
    batch = reader.read(1000, 0)
    assert isinstance(batch, Reading)
    assert (b"".join(batch.content), batch.split) == (b"1,x\n" * 3, "b")
    assert isinstance(reader.read(1000, 0), Idle)
    with (tmp_path / "a").open("a") as file:
        file.write("2,y\n")
    batch = reader.read(1000, 10_000)
    assert isinstance(batch, Reading)
    assert batch.content == [(begun.removesuffix("n,s\n") + "2,y\n").encode()]
    assert batch.split == "a"
