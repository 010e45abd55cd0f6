"""Where things lie below a storage, also where its URI carries options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow.fs as pafs
import pytest
from lockgate_common.storage import Location, is_lasting, is_refused, locate, write_durably, write_pieces_durably
from lockgate_coordinator.runtime.metadata_files import metadata_uri, storage_uri

S3 = "s3://bucket/base?endpoint_override=localhost:9&scheme=http&region=R"
OPTIONS = "?endpoint_override=localhost:9&scheme=http&region=R"


@pytest.mark.parametrize("base", [S3, S3.replace("base?", "base/?"), S3.replace("/base?", "?"), "plain", "a b%20?#c"])
@pytest.mark.parametrize("name", ["x", "a/b/_metadata", "odd %20 ?x=1#y"])
def test_the_uri_of_a_child_leads_to_the_child(base: str, name: str, tmp_path: Path) -> None:
    root = locate(base if "://" in base else str(tmp_path / base))
    child = root.child(name)
    again = locate(child.uri)
    assert again.path == child.path
    assert child.path == f"{root.path.rstrip('/')}/{name}"
    assert child.name == name.rpartition("/")[2]
    assert child.parent().path == locate(child.parent().uri).path
    assert child.uri.endswith(OPTIONS) == (not root.is_local)


def test_messages_show_neither_credentials_nor_options() -> None:
    location = locate("s3://key:secret@bucket/a?region=R&scheme=http")
    assert location.child("b c").masked_uri == "s3://bucket/a/b%20c"
    assert "secret" in location.child("b").uri, "what another process needs to reach it stays in the URI"


def test_a_uri_that_no_file_system_knows_is_refused_without_its_secrets() -> None:
    with pytest.raises(ValueError, match="nosuch://bucket/a is not a path or a URI") as caught:
        locate("nosuch://key:secret@bucket/a?token=secret")
    assert "secret" not in str(caught.value).replace(str(caught.value.__cause__), "")


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("local:///a", "local:///a begins with local://; write file://"),
        ("file:///etc/hostname#", "file:///etc/hostname# has a # in it; write %23 for it"),
        ("s3://key:secret@bucket/a#/b", "s3://bucket/a#/b has a # in it"),
    ],
)
def test_a_uri_that_means_less_than_it_says_is_refused(uri: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        locate(uri)


def test_a_path_with_slashes_behind_a_colon_is_a_path(tmp_path: Path) -> None:
    for name in ("x://y", "s3 ://y", "~://y"):
        location = locate(str(tmp_path / name))
        assert (location.is_local, location.path) == (True, str(tmp_path / name).replace("//", "/"))
        assert storage_uri(f"{tmp_path}/{name}") == location.uri


def test_another_folder_of_the_same_storage_is_reached_as_this_one_is() -> None:
    location = locate("s3://key:secret@bucket/a?region=R")
    assert location.elsewhere("s3://other/b").uri == "s3://key:secret@other/b?region=R"
    assert location.elsewhere("/tmp").is_local


@pytest.mark.parametrize(
    ("pointer", "uri"),
    [
        ("/a/b/", "file:///a/b/_metadata"),
        ("s3://b/x/chk-1", "s3://b/x/chk-1/_metadata"),
        ("s3://b/x/chk-1/?region=R", "s3://b/x/chk-1/_metadata?region=R"),
        ("s3://b/x/chk-1/_metadata?region=R", "s3://b/x/chk-1/_metadata?region=R"),
    ],
)
def test_pointers_that_users_type(pointer: str, uri: str) -> None:
    assert metadata_uri(pointer) == metadata_uri(uri) == uri


def test_a_storage_is_named_without_a_trailing_slash() -> None:
    assert storage_uri("s3://b/x/?region=R") == "s3://b/x?region=R"
    assert storage_uri("/a/b/") == "file:///a/b"


def test_files_of_a_file_system_without_whole_writes_appear_by_a_move(tmp_path: Path) -> None:
    seen: list[str] = []
    local = pafs.LocalFileSystem()

    class Watched:
        """A file system that shows a file while it is written, as HDFS does."""

        type_name = "hdfs"

        def __getattr__(self, name: str) -> object:
            return getattr(local, name)

        def open_output_stream(self, path: str) -> object:
            seen.append(path)
            return local.open_output_stream(path)

    write_durably(Location("hdfs://h/x", Watched(), str(tmp_path / "deep" / "x")), b"all")
    assert (tmp_path / "deep" / "x").read_bytes() == b"all"
    assert seen
    assert seen[0] != str(tmp_path / "deep" / "x")
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["x"]


@pytest.mark.parametrize("scheme", ["hdfs", "s3"])
def test_a_file_that_cannot_be_written_to_its_end_is_not_there_in_part(scheme: str, tmp_path: Path) -> None:
    local = pafs.LocalFileSystem()

    class Remote:
        type_name = scheme

        def __getattr__(self, name: str) -> object:
            return getattr(local, name)

    def parts() -> Iterator[bytes]:
        yield b"the beginning"
        raise OSError("the rest cannot be read")

    with pytest.raises(OSError, match="the rest cannot be read"):
        write_pieces_durably(Location(f"{scheme}://h/x", Remote(), str(tmp_path / "x")), parts())
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_an_object_store_did_not_replace_stays(tmp_path: Path) -> None:
    class Failing:
        type_name = "s3"
        deleted: ClassVar[list[str]] = []

        def open_output_stream(self, _path: str) -> object:
            return self

        def write(self, _data: bytes) -> None:
            raise OSError("the network is down")

        def close(self) -> None:
            raise OSError("the upload was not completed")

        def delete_file(self, path: str) -> None:
            self.deleted.append(path)

    with pytest.raises(OSError, match="the network is down"):
        write_durably(Location("s3://h/x", Failing(), str(tmp_path / "x")), b"new")
    assert Failing.deleted == []


@pytest.mark.parametrize(
    ("error", "refused", "lasting"),
    [
        (PermissionError("permission denied"), True, True),
        (OSError("When testing for existence of bucket 'b': AWS Error ACCESS_DENIED during HeadBucket"), True, True),
        (OSError("AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: no such key"), True, True),
        (OSError("AWS Error SIGNATURE_DOES_NOT_MATCH during PutObject operation"), True, True),
        (OSError("Kernel error -> The operation lacked the necessary privileges to complete for path a"), True, True),
        (OSError("Server returned non-2xx status code 401 Unauthorized"), True, True),
        (FileNotFoundError("no such bucket"), False, True),
        (OSError("When reading 'ACCESS_DENIED.csv': AWS Error SLOW_DOWN during GetObject operation"), False, False),
        (OSError("AWS Error NETWORK_CONNECTION during PutObject operation: 403 bytes were sent"), False, False),
        (ValueError("AWS Error ACCESS_DENIED"), False, False),
    ],
)
def test_what_only_an_operator_can_fix_is_no_outage(error: Exception, refused: bool, lasting: bool) -> None:
    assert (is_refused(error), is_lasting(error)) == (refused, lasting)
