"""Where jobs without the role code may read and write: links, relative names, URIs of all kinds, copies beside keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lockgate_common.places import SLOTS_PREFIX, Places, cluster_folder
from lockgate_common.storage import locate

OWN = "it belongs to the cluster itself"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """data/ with a file; own/ with the secret of a cluster and a folder in it; links from data to both."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.txt").write_text("a\n")
    (tmp_path / "own" / "storage").mkdir(parents=True)
    (tmp_path / "own" / "secret").write_text("secret\n")
    (tmp_path / "data" / "file").symlink_to(tmp_path / "own" / "secret")
    (tmp_path / "data" / "folder").symlink_to(tmp_path / "own")
    (tmp_path / "data" / "twice").symlink_to("folder/storage")
    return tmp_path


@pytest.mark.parametrize(
    ("storage", "folder"),
    [
        ("/data/", "/data/team"),
        ("/data?x", "/data?x/team"),
        ("/data/a://b?x", "/data/a://b?x/team"),
        ("s3://bucket/a/?region=r", "s3://bucket/a/team?region=r"),
        ("s3://bucket", "s3://bucket/team"),
    ],
)
def test_the_folder_of_a_cluster(storage: str, folder: str) -> None:
    assert cluster_folder(storage, "team") == folder


def test_public_paths_may_be_used(folder: Path) -> None:
    places = Places((str(folder / "own"),))
    for path in (folder / "data" / "in.txt", folder / "data", folder, folder / "owner", folder / "new" / "x"):
        for name in (str(path), path.as_uri(), os.path.relpath(path)):
            assert places.problem(name) == places.problem(name, writes=True) == "", name


@pytest.mark.parametrize(
    "name",
    [
        "{own}",
        "{own}/",
        "{own}/secret",
        "{own}/storage/new/file",
        "{data}/../own/secret",
        "{data}//..//own/./secret",
        "file://{own}/secret",
        "file:{own}/secret",
        "FILE://{own}/secret",
        "file://{own}/s%65cret",
        "{data}/file",
        "{data}/folder/secret",
        "{data}/folder/new",
        "{data}/twice/chk-1/_metadata",
        "file://{data}/folder/secret",
    ],
)
def test_every_name_of_a_private_place_is_refused(folder: Path, name: str) -> None:
    places = Places((str(folder / "own"),))
    path = name.format(own=folder / "own", data=folder / "data")
    assert places.problem(path) == OWN
    assert places.problem(path, writes=True) == OWN


def test_relative_and_home_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "data")
    monkeypatch.setenv("HOME", str(folder / "own"))
    places = Places((str(folder / "own"),))
    for name in ("../own/secret", "file", "folder/secret", "~/secret", "./twice"):
        assert places.problem(name) == OWN, name
    assert places.problem("in.txt") == ""


def test_a_private_place_may_itself_be_a_link(folder: Path) -> None:
    (folder / "name").symlink_to(folder / "own")
    for named, asked in (("name/secret", "own/secret"), ("own/secret", "name/secret")):
        assert Places((str(folder / named),)).problem(str(folder / asked)) == OWN


@pytest.mark.parametrize("name", ["secret.12.tmp", "secret.bak", ".secret.swp", "secret~", "host.key", "ca.pem"])
def test_copies_and_keys_beside_a_private_file(folder: Path, name: str) -> None:
    places = Places((str(folder / "own" / "secret"),))
    assert places.problem(str(folder / "own" / name)) == OWN
    assert places.problem(str(folder / "own" / "x" / name)) != OWN
    assert places.problem(str(folder / "own" / "orders.csv")) == ""


def test_data_may_have_the_name_of_the_settings(folder: Path) -> None:
    places = Places((str(folder / "own" / "prod.toml"),))
    assert places.problem(str(folder / "own" / "prod.toml.bak")) == OWN
    assert places.problem(str(folder / "own" / "prod.csv")) == ""


@pytest.mark.parametrize("path", ["/proc/self/environ", "/sys/kernel", "/dev/mem", "/etc/shadow", "/run/secrets/x"])
def test_the_system_is_refused(path: str) -> None:
    assert "jobs do not use what is in" in Places().problem(path)


def test_shared_memory_is_free_but_for_the_records_of_jobs() -> None:
    assert Places().problem("/dev/shm/orders.txt") == ""
    assert "in /dev" in Places().problem(f"/dev/shm/{SLOTS_PREFIX}1-2/3.slot")


def test_hidden_paths_are_refused(tmp_path: Path) -> None:
    for name in (".ssh/id_rsa", "a/.aws/credentials", ".env"):
        assert "begins with a dot" in Places().problem(str(tmp_path / name))


def test_settings_and_zookeepers_data_are_known_by_their_names(tmp_path: Path) -> None:
    for name in ("lockgate.toml", "zookeeper/version-2/log.1"):
        assert Places().problem(str(tmp_path / name)) == OWN


def test_programs_can_be_read_and_not_written() -> None:
    path = "/usr/lib/x.pth"
    assert Places().problem(path) == ""
    assert "jobs do not write what is in" in Places().problem(path, writes=True)


def test_with_folders_nothing_else_is_allowed(folder: Path) -> None:
    places = Places((str(folder / "own"),), (str(folder / "data"), "s3://shop/in"))
    assert places.problem(str(folder / "data" / "in.txt")) == places.problem("s3a://shop/in/2026/x.csv?region=r") == ""
    for name in (str(folder), "/srv", f"{folder}/data2", "s3://shop/input", "s3://shop", "s3://shop/in/../out"):
        assert places.problem(name) == "taskmanager.folders does not allow it", name
    assert places.problem(str(folder / "data" / "file")) == OWN


def test_an_allowed_folder_may_be_hidden_or_the_systems_but_not_the_clusters(folder: Path) -> None:
    hidden = folder / ".data"
    places = Places((str(folder / "own"),), ("/", str(hidden), "/etc/ssl", str(folder / "own")))
    assert places.problem(str(hidden / "x")) == places.problem("/etc/ssl/certs") == ""
    assert "begins with a dot" in places.problem(str(hidden / ".x"))
    assert places.problem(str(folder / "own" / "x")) == OWN
    assert "jobs do not use" in places.problem("/proc/self/environ")


@pytest.mark.parametrize(
    ("private", "asked"),
    [
        ("s3://b/l/default", "s3://b/l/default"),
        ("s3://b/l/default?region=r", "s3a://KEY:SECRET@b/l/default/job/run?endpoint_override=x"),
        ("s3://b/l/default", "s3://b/l//default/x"),
        ("s3://b/l/default", "s3://b/x/../l/default/x"),
        ("s3://b/l/default", "s3://b/l/d%65fault/x"),
        ("gs://b/l", "gcs://b/l/x"),
        ("hdfs://namenode:8020/l", "hdfs://10.0.0.1:8020/l/x"),
        ("hdfs://namenode:8020/l", "viewfs://c/l/x"),
        ("abfs://c@account.dfs.core.windows.net/l", "abfss://account.dfs.core.windows.net/c/l/x"),
        ("abfs://c@account.dfs.core.windows.net/l", "abfs://c/l/x"),
    ],
)
def test_remote_places_have_many_names(private: str, asked: str) -> None:
    assert Places((private,)).problem(asked) == OWN
    assert Places((private,)).problem("s3://other/l/default") == ""


def test_other_places_of_the_same_bucket_are_free() -> None:
    places = Places(("s3://b/l/default",))
    assert places.problem("s3://b/l/default2/x") == places.problem("s3://b/l") == places.problem("s3://b/in") == ""


def test_an_invalid_path_is_refused() -> None:
    assert Places().problem("/a\0b") == "the path cannot be resolved"
    assert Places().problem("s3://[a/b") == "the path cannot be resolved"


NAMES = ["{data}/x://?/../../../own/secret", "{data}/x://../../own/secret", "{data}/s3://../../own/secret"]


@pytest.mark.parametrize("name", [*NAMES, "local://{own}/secret", "LOCAL://{own}/secret", "mock://{own}/secret"])
@pytest.mark.parametrize("has_folders", [False, True])
def test_a_path_that_looks_like_a_uri_and_a_uri_that_leads_to_this_machine(
    folder: Path, name: str, *, has_folders: bool
) -> None:
    places = Places((str(folder / "own"),), (str(folder / "data"),) if has_folders else ())
    text = name.format(own=folder / "own", data=folder / "data")
    assert places.problem(text) == (
        OWN if name in NAMES else f"such a job does not use {text.partition(':')[0].lower()}://"
    )
    assert not has_folders or places.problem(text.replace("/own/", "/other/")), "only what is in the folder is allowed"


@pytest.mark.parametrize("scheme", ["fsspec+file", "hf", "https", "az", "x"])
def test_only_what_is_known_to_be_elsewhere_is_not_compared_with_paths(scheme: str) -> None:
    assert Places().problem(f"{scheme}://a/b") == f"such a job does not use {scheme}://"


def test_a_path_is_taken_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As libraries open it: neither a URI nor a home is in it, and `..` behind a link leads to where the link leads."""
    monkeypatch.chdir(folder / "data")
    monkeypatch.setenv("HOME", "/nowhere")
    places = Places((str(folder / "own"),))
    for name in ("s3://../../own/secret", "~/../../own/secret", "file:/../../own/secret", "twice/../secret", "file"):
        assert places.path_problem(name) == OWN, name
    assert places.path_problem("twice/../../data/in.txt") == ""


NAMED = ["own", "secret", "data", "folder", "twice", "..", ".", "", "~"]
ODD = ["x:", "s3:", "FILE:", "?", "a?b", "#", ";", "é", "\t", "%2E%2E", "o%77n", "%2F"]
STARTS = st.sampled_from(
    ["{data}/", "file://{data}/", "file:{data}/", "FILE:/", "FILE:", "local://{data}/", "~/", "./"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=STARTS, parts=st.lists(st.sampled_from(NAMED + ODD), max_size=8))
def test_a_name_is_judged_by_the_path_that_is_opened_for_it(folder: Path, start: str, parts: list[str]) -> None:
    name = start.format(data=folder / "data") + "/".join(parts)
    try:
        location = locate(name)
    except (OSError, ValueError):
        return
    assert location.is_local
    for folders in ((), (str(folder / "data"),)):
        places = Places((str(folder / "own"),), folders)
        assert places.problem(name) == places.problem(os.path.realpath(location.path)), location
