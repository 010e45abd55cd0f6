"""Where the class archive lies, and when it is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_taskmanager.spark import class_archive


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("one Java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "jdk"


@pytest.mark.usefixtures("java_home")
def test_without_an_archive_there_are_no_options() -> None:
    assert class_archive.options_to_use() == ""


@pytest.mark.usefixtures("java_home")
def test_an_existing_archive_is_used() -> None:
    archive = class_archive.path()
    assert archive is not None
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={archive} " in class_archive.options_to_use()


def test_another_java_has_another_archive(java_home: Path) -> None:
    before = class_archive.path()
    (java_home / "bin" / "java").write_text("an upgraded Java")
    assert class_archive.path() != before


def test_without_java_there_is_no_place_for_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert class_archive.path() is None
    assert class_archive.options_to_use() == ""
