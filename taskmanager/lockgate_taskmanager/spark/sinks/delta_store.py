"""The file system of a Delta table for pyarrow: translates delta-rs's storage options.

delta-rs has its own file system for pyarrow, with the same options. But it blocks all other threads of the process
during each request (1.6.6), and a storage that hangs would block heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from lockgate_common import storage as filesystem
from lockgate_common.storage import Location
from lockgate_common.uris import LOCAL, scheme_of

_S3 = {  # delta-rs's names, in any case, with and without the prefix; pyarrow's names
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}


def located(uri: str, options: Mapping[str, str]) -> Location:
    """The table's folder. options: of delta-rs's object store. Raises OSError or ValueError for an unsupported URI."""
    if scheme_of(uri) in ("", LOCAL):
        return filesystem.locate(uri)
    plain = uri.rstrip("/")
    parts = urlsplit(plain)
    known = s3_options(options)
    if parts.scheme not in ("s3", "s3a") or not known:
        return filesystem.locate(plain)
    return Location(plain, pafs.S3FileSystem(**known), f"{parts.netloc}{parts.path}")


def s3_options(options: Mapping[str, str]) -> dict[str, str]:
    """The arguments for pyarrow's S3FileSystem."""
    found: dict[str, str] = {}
    for name, value in options.items():
        ours = _S3.get(name.lower().removeprefix("aws_"))
        if ours is not None:
            found[ours] = value
    endpoint = found.get("endpoint_override", "")
    if endpoint.startswith("http://"):
        found["scheme"] = "http"
    return found
