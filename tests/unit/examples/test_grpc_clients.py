"""What clients without Lockgate set on their channels is what Lockgate's own client sets, as docs/grpc-api.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lockgate_proto.rpc import CHANNEL_OPTIONS

ROOT = Path(__file__).resolve().parents[3]
NEEDED = {
    name: dict(CHANNEL_OPTIONS)[name]
    for name in (
        "grpc.enable_retries",
        "grpc.keepalive_time_ms",
        "grpc.keepalive_timeout_ms",
        "grpc.http2.max_pings_without_data",
    )
}


@pytest.mark.parametrize(
    ("file", "between"),
    [("examples/ruby/submit.rb", '" => '), ("examples/grpc_submit.py", '", '), ("docs/grpc-api.md", "` = ")],
)
def test_a_client_notices_a_frozen_leader(file: str, between: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    found = re.findall(rf"(grpc\.[a-z_.0-9]+){re.escape(between)}([0-9_]+)", text.replace("\n   ", " "))
    assert {name: int(value) for name, value in found} == NEEDED
