"""What connectors refuse in jobs without the role code, and that others are as free as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lockgate_common.places import Places
from lockgate_proto.messages import DeltaSink, FileFormat, FileSink, FileSource, KafkaSink, SplitState, SqlSink
from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.sinks import delta, files, sql
from lockgate_taskmanager.spark.sinks.kafka import KafkaSink as KafkaWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.spark.sources.lines import LineSource
from lockgate_taskmanager.spark.sources.listing import discover
from lockgate_taskmanager.spark.sources.parquet import ParquetSource
from lockgate_taskmanager.spark.variables import filled, filled_url
from lockgate_taskmanager.task.known_splits import KnownSplits
from lockgate_taskmanager.task.program import UserError

pytestmark = pytest.mark.spark

WITHOUT = "which needs the role code"


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """own/ with a secret; in/ with a file, and links in it to the secret and its folder."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "secret").write_text("the secret\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\n")
    return tmp_path


def limits(places: Path, *variables: str) -> Limits:
    return Limits(Places((str(places / "own"),)), variables)


def context(places: Path, *, bound: bool = True) -> SinkContext:
    return SinkContext("job", "run", 1, "v", 0, "op", "operator 'op'", limits=limits(places) if bound else UNLIMITED)


def text(path: Path, **more: Any) -> FileSource:
    return FileSource(path=str(path), format=FileFormat.TEXT, **more)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("name", ["own/secret", "own", "in/../own/secret"])
def test_a_source_at_a_private_path_is_refused(places: Path, name: str, continuous: bool) -> None:
    source = text(places / name, continuous=continuous)
    with pytest.raises(UserError, match=WITHOUT):
        discover(source, (), limits(places))
    assert discover(source, ())[0]
    with pytest.raises(UserError, match=WITHOUT):
        LineSource(source, ("value",), limits=limits(places)).spec()


@pytest.mark.parametrize(("link", "target"), [("link.txt", "own/secret"), ("folder", "own")])
def test_links_in_a_folder_are_followed_before_a_file_is_opened(places: Path, link: str, target: str) -> None:
    (places / "in" / link).symlink_to(places / target)
    name = link if target == "own/secret" else "folder/secret"
    source = text(places / "in")
    reader = LineSource(source, ("value",), limits=limits(places))
    reader.spec()
    reader.assign((SplitState("a.txt", 0, 2), SplitState(name, 0, 11)), True)
    with pytest.raises(UserError, match=f"its file {name} .*{WITHOUT}: it belongs to the cluster itself"):
        reader.read(1_000, 0)
    free = LineSource(source, ("value",))
    free.spec()
    free.assign((SplitState(name, 0, 11),), True)
    assert b"the secret\n" in free.read(1_000, 0).content  # type: ignore[union-attr]


def test_a_file_that_becomes_a_link_between_listing_and_reading(places: Path) -> None:
    source = text(places / "in")
    reader = LineSource(source, ("value",), limits=limits(places))
    reader.spec()
    reader.assign(*discover(source, (), limits(places)))
    (places / "in" / "a.txt").unlink()
    (places / "in" / "a.txt").symlink_to(places / "own" / "secret")
    with pytest.raises(UserError, match=WITHOUT):
        reader.read(1_000, 0)


def test_footers_of_parquet_files_are_not_read_either(places: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), places / "own" / "x.parquet")
    (places / "in" / "a.txt").unlink()
    (places / "in" / "x.parquet").symlink_to(places / "own" / "x.parquet")
    source = FileSource(path=str(places / "in"), format=FileFormat.PARQUET)
    with pytest.raises(UserError, match=WITHOUT):
        discover(source, KnownSplits(), limits(places))
    with pytest.raises(UserError, match=WITHOUT):
        ParquetSource(source, None, limits=limits(places)).spec()
    assert discover(source, ()) == ((SplitState("x.parquet", 0, 1),), True)


MISLEADING = ["{data}/x://?/../../../own/secret", "{data}/x://../../own/secret", "local://{own}/secret"]


@pytest.mark.parametrize("has_folders", [False, True])
@pytest.mark.parametrize("name", MISLEADING)
def test_a_path_that_looks_like_a_uri(places: Path, name: str, *, has_folders: bool) -> None:
    """It is opened as a path, and through folders that other jobs may have made."""
    (places / "in" / "x:" / "?").mkdir(parents=True)
    path = name.format(data=places / "in", own=places / "own")
    bound = Limits(Places((str(places / "own"),), (str(places / "in"),) if has_folders else ()))
    where = replace(context(places), limits=bound)
    source = FileSource(path=path, format=FileFormat.TEXT)
    uses: list[Callable[[], object]] = [
        lambda: discover(source, (), bound),
        lambda: LineSource(source, ("value",), limits=bound).spec(),
        lambda: files.FileSink(where, FileSink(path, FileFormat.CSV)),
        lambda: bound.check_name(path, "the state backend's folder", writes=True),
    ]
    for use in uses:
        with pytest.raises(UserError, match=WITHOUT if name != MISLEADING[-1] else "local://"):
            use()
    assert (places / "own" / "secret").read_text() == "the secret\n"


@pytest.mark.parametrize("name", ["{in}/x://../../own/x", "s3://../../own/x", "~/../../own/x"])
def test_the_path_of_a_database_that_looks_like_a_uri(places: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places / "in")
    url = f"sqlite:///{name.format_map({'in': places / 'in'})}"
    with pytest.raises(UserError, match=WITHOUT):
        sql.SqlSink(context(places), SqlSink(url, "t", ("k",)))


@pytest.mark.parametrize("name", MISLEADING)
def test_the_path_of_a_delta_table_that_looks_like_a_uri(places: Path, name: str) -> None:
    pytest.importorskip("deltalake")
    with pytest.raises(UserError, match=WITHOUT):
        delta.DeltaSink(context(places), DeltaSink(name.format(data=places / "in", own=places / "own")))


def sinks(places: Path, folder: str) -> dict[str, Callable[[SinkContext], object]]:
    path = str(places / folder)
    return {
        "files": lambda where: files.FileSink(where, FileSink(path, FileFormat.PARQUET)),
        "uri": lambda where: files.FileSink(where, FileSink(f"file://{path}/x", FileFormat.CSV)),
        "delta": lambda where: delta.DeltaSink(where, DeltaSink(path)),
        "sqlite": lambda where: sql.SqlSink(where, SqlSink(f"sqlite:///{path}/x.db", "t", ("k",))),
    }


@pytest.mark.parametrize("kind", ["files", "uri", "delta", "sqlite"])
@pytest.mark.parametrize("folder", ["own", "own/new", "in/link", "in/../own"])
def test_sinks_do_not_write_private_places(places: Path, kind: str, folder: str) -> None:
    if kind == "delta":
        pytest.importorskip("deltalake")
    (places / "in" / "link").symlink_to(places / "own")
    make = sinks(places, folder)[kind]
    with pytest.raises(UserError, match=f"cannot be written by this job, {WITHOUT}"):
        make(context(places))
    make(context(places, bound=False))
    sinks(places, "in")[kind](context(places))


@pytest.mark.parametrize("name", ["_staging", "_delta_log"])
def test_links_where_sinks_stage_are_followed(places: Path, name: str) -> None:
    (places / "in" / name).symlink_to(places / "own")
    with pytest.raises(UserError, match=WITHOUT):
        files.FileSink(context(places), FileSink(str(places / "in"), FileFormat.PARQUET))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///file:{own}/secret?uri=true",
        "sqlite:///{own}/secret?uri=true&vfs=unix",
        "sqlite:///file:{own}/x",
        "sqlite:////{own}/x",
        "postgresql://u@h/d?passfile={own}/secret",
        "postgresql://u@h/d?sslkey={own}/secret",
        "postgresql://u@h/d?sslkey=engine:x",
        "postgresql://u@h/d?sslkey={in}/x://?/../../../own/secret",
        "postgresql://u@h/d?sslcert=../own/secret",
    ],
)
def test_files_in_database_urls(places: Path, url: str) -> None:
    with pytest.raises(UserError, match=r"role code|must be an absolute path"):
        sql.SqlSink(context(places), SqlSink(url.format_map({"own": places / "own", "in": places / "in"}), "t", ("k",)))


@pytest.mark.parametrize("name", ["ssl.key.location", "ssl.keystore.location", "sasl.kerberos.keytab"])
def test_files_in_options_for_kafka(places: Path, name: str) -> None:
    pytest.importorskip("confluent_kafka")
    sink = KafkaSink("h:1", "t", value="v", options={name: str(places / "own" / "secret")})
    disguised = replace(sink, options={name: f"{places}/in/x://../../own/secret"})
    for wanted in (sink, disguised):
        with pytest.raises(UserError, match=f"the file of the option {name} cannot be read"):
            KafkaWriter(context(places), wanted)
    KafkaWriter(context(places, bound=False), sink)


@pytest.mark.parametrize(
    "name",
    [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "aws_container_credentials_relative_uri",
        "aws_metadata_endpoint",
        "google_service_account",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "azure_federated_token_file",
        "azure_use_azure_cli",
    ],
)
def test_the_rights_of_the_host_are_not_for_tables_of_such_jobs(places: Path, name: str) -> None:
    pytest.importorskip("deltalake")
    sink = DeltaSink(str(places / "in"), {name: "x"})
    with pytest.raises(UserError, match=f"the option {name} is about files or rights"):
        delta.DeltaSink(context(places), sink)
    delta.DeltaSink(context(places, bound=False), sink)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOP_PASSWORD", "OTHER", "LOCKGATE_TOKEN"):
        monkeypatch.setenv(name, f"value of {name}")


@pytest.mark.usefixtures("environment")
def test_only_variables_that_the_operator_allows_are_used(places: Path) -> None:
    bound = limits(places, "SHOP_*", "*_TOKEN")
    options = {"sasl.password": "${SHOP_PASSWORD}", "client.id": "x"}
    assert filled(options, "op", bound) == {"sasl.password": "value of SHOP_PASSWORD", "client.id": "x"}
    for name in ("OTHER", "LOCKGATE_TOKEN", "NOT_SET"):
        with pytest.raises(UserError, match=rf"\$\{{{name}\}}, which needs the role code, or an operator who adds"):
            filled({"password": f"${{{name}}}"}, "op", bound)
        with pytest.raises(UserError, match=r"taskmanager\.variables"):
            filled_url(f"postgresql://u:${{{name}}}@h/d", "op", limits(places))
    assert filled({"x": "${OTHER}"}, "op") == {"x": "value of OTHER"}


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://${SHOP_PASSWORD}@h/d",
        "postgresql://${SHOP_PASSWORD}:x@h/d",
        "postgresql://u:x@${SHOP_PASSWORD}/d",
        "postgresql://u:x@h/${SHOP_PASSWORD}",
        "postgresql://u:x@h/d?application_name=${SHOP_PASSWORD}",
        "postgresql://h:${SHOP_PASSWORD}/d",
        "postgresql://h:1/d:${SHOP_PASSWORD}@x",
        "postgresql://u:x@h/d?password=x&application_name=${SHOP_PASSWORD}",
        "sqlite:////tmp/${SHOP_PASSWORD}.db",
    ],
)
def test_values_appear_only_where_no_one_sees_them(places: Path, url: str) -> None:
    with pytest.raises(UserError, match="stands only for a password or key"):
        filled_url(url, "op", limits(places, "SHOP_PASSWORD"))
    assert "value%20of" in filled_url(url, "op")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "url", ["postgresql://u:${SHOP_PASSWORD}@h/d", "postgresql://h/d?user=u&password=${SHOP_PASSWORD}"]
)
def test_passwords_in_urls_are_filled_in(places: Path, url: str) -> None:
    assert "value%20of%20SHOP_PASSWORD" in filled_url(url, "op", limits(places, "SHOP_PASSWORD"))


@pytest.mark.usefixtures("environment")
def test_only_password_options_take_variables(places: Path) -> None:
    for name in ("client.id", "region", "endpoint", "debug"):
        with pytest.raises(UserError, match="stands only for a password or key"):
            filled({name: "${SHOP_PASSWORD}"}, "op", limits(places, "*"))
