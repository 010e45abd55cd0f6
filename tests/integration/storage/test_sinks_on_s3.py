"""File and Delta sinks on a real S3 server that refuses their credentials."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from lockgate_proto.messages import DeltaSink as DeltaOptions
from lockgate_proto.messages import FileFormat
from lockgate_proto.messages import FileSink as FileOptions
from lockgate_taskmanager.spark.sinks.delta import DeltaSink
from lockgate_taskmanager.spark.sinks.delta_log import DeltaLog
from lockgate_taskmanager.spark.sinks.files import FileSink
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.task.program import UserError

from tests.s3_server import S3Server, server_for_tests

pytestmark = pytest.mark.integration

SCHEMA = pa.schema([("n", pa.int64())])
WHERE = "operator 'w'"
CONTEXT = SinkContext("job", "run", 1, "v", 0, "w", WHERE)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server without users."""
    with server_for_tests(str(tmp_path_factory.mktemp("s3") / "server.log")) as server:
        plain = {"Content-Type": "text/plain"}  # the number of requests that need no right
        enforce = urllib.request.Request(f"http://{server.address}/moto-api/reset-auth", b"0", plain)
        with urllib.request.urlopen(enforce, timeout=60) as answer:
            assert answer.status == 200
        yield server


def into_files(server: S3Server) -> None:
    FileSink(CONTEXT, FileOptions(f"s3://shop/out?{server.options}", FileFormat.PARQUET)).prepare(SCHEMA)


def delta_options(server: S3Server) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "unknown",
        "AWS_SECRET_ACCESS_KEY": "not-in-any-message",
        "AWS_REGION": "eu-north-1",
        "AWS_ENDPOINT_URL": f"http://{server.address}",
        "AWS_ALLOW_HTTP": "true",
    }


def into_a_table(server: S3Server) -> None:
    DeltaSink(CONTEXT, DeltaOptions("s3://shop/orders", delta_options(server))).prepare(SCHEMA)


def into_a_log(server: S3Server) -> None:
    DeltaLog("s3://shop/orders", delta_options(server), WHERE).require_fit(SCHEMA)


@pytest.mark.parametrize("write", [into_files, into_a_table, into_a_log])
def test_refused_credentials_are_the_authors_error_with_the_operator(
    strict: S3Server, write: Callable[[S3Server], None]
) -> None:
    with pytest.raises(UserError, match=r"^operator 'w': .*s3://shop/") as caught:
        write(strict)
    assert "not-in-any" not in str(caught.value)
