"""One S3 server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3_server import S3Server, server_for_tests


@pytest.fixture(scope="package")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with server_for_tests(str(tmp_path_factory.mktemp("s3") / "server.log")) as server:
        yield server
