"""What `benchmarks.incremental` measures: bytes of real snapshots, in each form."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import incremental

pytestmark = pytest.mark.spark


def test_what_snapshots_write_is_measured_for_each_form(tmp_path: Path) -> None:
    arguments = argparse.Namespace(mib=1, keys=64, edits=2, snapshots=2)
    means = {}
    for form in incremental.FORMS:
        some = incremental.written_bytes(form, 10, arguments, tmp_path / str(len(means)))
        assert len(some) == 2
        means[form] = sum(some) / 2 / (1 << 20)
    assert means["full"] >= 1
    assert 0.09 < means["incremental"] < 0.15  # 6 of 64 keys
    assert 0.09 < means["operator's own"] < 0.5
    assert means["differences"] < 0.02


def test_what_snapshots_write_is_drawn(tmp_path: Path) -> None:
    found = {(form, share): [1 << 20, 2 << 20] for form in incremental.FORMS for share in incremental.SHARES}
    incremental.plot(found, 40, tmp_path / "written.svg")
    text = (tmp_path / "written.svg").read_text()
    assert "<svg" in text
