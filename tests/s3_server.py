"""The S3 server that tests use: moto's, a process of its own; skipped where it is not installed, unless required."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.fs as pafs
import pytest
from lockgate_common.ports import choose

REQUIRED = "LOCKGATE_TEST_S3"
"""Set to `required` where a skip is to count as a failure."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "lockgate", "AWS_SECRET_ACCESS_KEY": "not-in-any-log"}
PATIENCE_S = 120.0


@dataclass(frozen=True)
class S3Server:
    """A server that runs. address: `host:port`."""

    address: str

    @property
    def options(self) -> str:
        """What every URI carries behind its question mark."""
        return f"endpoint_override={self.address}&scheme=http&region=eu-north-1"

    def bucket(self) -> str:
        """A new one, empty; its name."""
        name = f"bucket-{secrets.token_hex(6)}"
        made = pafs.S3FileSystem(
            endpoint_override=self.address, scheme="http", region="eu-north-1", allow_bucket_creation=True
        )
        made.create_dir(name)
        return name

    def uri(self, folder: str) -> str:
        """A folder in a new bucket, with the options."""
        return f"s3://{self.bucket()}/{folder}?{self.options}"


@contextlib.contextmanager
def server_for_tests(log: str) -> Iterator[S3Server]:
    """One that runs, with its credentials in the environment of this process. log: the file it writes to."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        reason = "moto and flask are not installed"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    (port,) = choose("127.0.0.1", 1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with open(log, "wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            _wait(process, f"http://127.0.0.1:{port}/moto-api/", log)
            yield S3Server(f"127.0.0.1:{port}")
        finally:
            process.kill()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _wait(process: subprocess.Popen[bytes], url: str, log: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.05)
    raise AssertionError(f"the S3 server did not start, see {log}")
