"""Where a command finds its cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lockgate_common.tls import TlsFiles

from lockgate.client import find_cluster
from lockgate.errors import SettingsError

SECRET = "0123456789abcdef0123"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("LOCKGATE_CLUSTER", "LOCKGATE_CONFIG", "LOCKGATE_SECRET_FILE", "LOCKGATE_ZOOKEEPER"):
        monkeypatch.delenv(name, raising=False)


def cluster_directory(path: Path, *coordinators: str) -> Path:
    path.mkdir()
    secret = path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    content = {"coordinators": coordinators, "zookeeper": "127.0.0.1:2181", "secret_file": str(secret), "pids": {}}
    (path / "cluster.json").write_text(json.dumps(content))
    return path


def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_cluster().coordinators == ("127.0.0.1:7070",)
    cluster_directory(tmp_path / ".lockgate", "127.0.0.1:1001")
    assert find_cluster().coordinators == ("127.0.0.1:1001",)
    Path("lockgate.toml").write_text("[cluster]\ncoordinators = ['settings:1002']\n")
    assert find_cluster().coordinators == ("settings:1002",)
    monkeypatch.setenv("LOCKGATE_CLUSTER", "env:1003")
    assert find_cluster().coordinators == ("env:1003",)
    assert find_cluster("option:1004,[::1]:1005").coordinators == ("option:1004", "[::1]:1005")


def test_a_directory_brings_its_zookeeper_and_secret(tmp_path: Path) -> None:
    directory = cluster_directory(tmp_path / "c", "127.0.0.1:1")
    for named in (str(directory), str(directory / "cluster.json")):
        target = find_cluster(named)
        assert target.zookeeper == "127.0.0.1:2181"
        assert target.credentials.secret == SECRET
        assert str(directory) in target.origin


def test_a_secret_that_was_named_beats_that_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = cluster_directory(tmp_path / "c", "127.0.0.1:1")
    other = tmp_path / "other"
    other.write_text("another-secret-of-mine")
    other.chmod(0o600)
    assert find_cluster(str(directory), secret_file=str(other)).credentials.secret == "another-secret-of-mine"
    monkeypatch.setenv("LOCKGATE_SECRET_FILE", str(other))
    assert find_cluster(str(directory)).credentials.secret == "another-secret-of-mine"


def test_a_directory_provides_zookeepers_tls_files_which_settings_override(tmp_path: Path) -> None:
    directory = cluster_directory(tmp_path / "c", "127.0.0.1:1")
    description = json.loads((directory / "cluster.json").read_text())
    description["zookeeper_tls"] = {"certificate": "/c", "key": "/k", "authority": "/a"}
    (directory / "cluster.json").write_text(json.dumps(description))
    assert find_cluster(str(directory)).credentials.zookeeper == TlsFiles("/c", "/k", "/a")
    Path("lockgate.toml").write_text("[zookeeper]\ntls = true\nauthority = '/other'\n")
    assert find_cluster(str(directory)).credentials.zookeeper == TlsFiles(authority="/other")


def test_a_directory_brings_its_tls_and_settings_of_your_own_count_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = cluster_directory(tmp_path / "c", "127.0.0.1:1")
    tls = {"certificate": "/tls/host.pem", "key": "/tls/host.key", "authority": "/tls/ca.pem", "mutual": True}
    content = json.loads((directory / "cluster.json").read_text())
    (directory / "cluster.json").write_text(json.dumps(content | {"tls": tls}))
    target = find_cluster(str(directory))
    assert target.credentials.secret == SECRET
    assert target.credentials.tls == TlsFiles(**tls)
    monkeypatch.setenv("LOCKGATE_TLS_CERTIFICATE", "/mine/alice.pem")
    monkeypatch.setenv("LOCKGATE_TLS_KEY", "/mine/alice.key")
    assert find_cluster(str(directory)).credentials.tls == TlsFiles(
        "/mine/alice.pem", "/mine/alice.key", "/tls/ca.pem", mutual=True
    )


def test_zookeeper_alone_is_enough(tmp_path: Path) -> None:
    cluster_directory(tmp_path / ".lockgate", "127.0.0.1:1001")
    target = find_cluster(zookeeper="z:2181", name="prod")
    assert (target.coordinators, target.zookeeper, target.name) == ((), "z:2181", "prod")


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("nonsense", "neither HOST:PORT .* nor the directory"),
        ("host:99999", "not HOST:PORT with a port from 1 to 65535"),
        ("empty", "no cluster is running in empty: .*lockgate cluster --dir empty"),
        ("broken", "cannot read broken/cluster.json"),
    ],
)
def test_an_invalid_cluster_is_reported_in_one_sentence(named: str, words: str) -> None:
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/cluster.json").write_text("[]")
    with pytest.raises(SettingsError, match=words):
        find_cluster(named)


def test_a_description_that_others_can_change_is_refused(tmp_path: Path) -> None:
    directory = cluster_directory(tmp_path / ".lockgate", "127.0.0.1:1")
    (directory / "cluster.json").chmod(0o666)
    with pytest.raises(SettingsError, match=r"cluster.json can be changed by other users; run: chmod go-w"):
        find_cluster()


def test_settings_in_the_present_folder_that_others_can_change_are_refused(tmp_path: Path) -> None:
    settings = Path("lockgate.toml")
    settings.write_text("[cluster]\ncoordinators = ['127.0.0.1:1002']\n")
    settings.chmod(0o666)
    with pytest.raises(SettingsError, match=r"lockgate.toml can be changed by other users"):
        find_cluster()
    assert find_cluster(config=tmp_path / "lockgate.toml").coordinators == ("127.0.0.1:1002",)  # named by the user


@pytest.mark.parametrize("way", ["elsewhere", "out of the folder", "by a link"])
def test_a_description_names_no_secret_file_outside_its_folder(tmp_path: Path, way: str) -> None:
    private = tmp_path / "private-key"
    private.write_text("a private key, which is no secret of a cluster")
    private.chmod(0o600)
    directory = cluster_directory(tmp_path / ".lockgate", "127.0.0.1:1")
    (directory / "link").symlink_to(private)
    secret = {
        "elsewhere": private,
        "out of the folder": directory / ".." / "private-key",
        "by a link": directory / "link",
    }[way]
    content = {"coordinators": ["127.0.0.1:1"], "secret_file": str(secret)}
    (directory / "cluster.json").write_text(json.dumps(content))
    with pytest.raises(SettingsError, match=r"neither in its own folder nor .*LOCKGATE_SECRET_FILE"):
        find_cluster()
    assert find_cluster(secret_file=str(private)).credentials.secret.startswith("a private key")


def test_a_description_may_name_the_secret_of_the_user(tmp_path: Path) -> None:
    own = tmp_path / "config" / "lockgate" / "secret"
    own.parent.mkdir(parents=True)
    own.write_text("the-secret-of-the-user")
    own.chmod(0o600)
    directory = cluster_directory(tmp_path / ".lockgate", "127.0.0.1:1")
    (directory / "cluster.json").write_text(json.dumps({"coordinators": ["127.0.0.1:1"], "secret_file": str(own)}))
    assert find_cluster().credentials.secret == "the-secret-of-the-user"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"coordinators": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than 200 levels deep"),
        (b'{"coordinators": ["\xff"]}', "is not UTF-8 text"),
        (b'{"coordinators": 7}', "cannot read"),
        (b'{"coordinators": ["' + b"x" * 100_000 + b'"]}', "is not HOST:PORT"),
    ],
    ids=["deep", "bytes", "number", "long"],
)
def test_an_invalid_description_is_refused_in_a_short_sentence(content: bytes, words: str) -> None:
    Path("strange").mkdir()
    Path("strange/cluster.json").write_bytes(content)
    with pytest.raises(SettingsError, match=words) as refused:
        find_cluster("strange")
    assert len(str(refused.value)) < 500
