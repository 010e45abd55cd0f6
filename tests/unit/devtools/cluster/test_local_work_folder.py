"""Folders are kept when a look at the logs is worth it."""

from __future__ import annotations

import pytest
from lockgate_devtools.cluster.foreground import Stopped
from lockgate_devtools.cluster.work_folder import WorkFolder


@pytest.mark.parametrize(
    ("error", "keep", "log", "kept"),
    [
        (None, False, True, False),
        (None, True, True, True),
        (ValueError, False, True, True),
        (ValueError, False, False, False),
        (Stopped, False, True, False),
    ],
)
def test_a_work_folder_is_kept_after_an_error_with_logs_or_on_request(
    error: type[BaseException] | None, keep: bool, log: bool, kept: bool
) -> None:
    said: list[str] = []
    folder = WorkFolder("lockgate-test-", said.append)
    try:
        with folder as work:
            if log:
                (work.path / "a.log").write_text("story")
            if keep:
                work.keep()
            if error:
                raise error
    except (ValueError, Stopped):
        pass
    assert folder.path.exists() is kept
    assert said == ([f"logs and data are kept in {folder.path}"] if kept else [])
    if kept:
        (folder.path / "a.log").unlink()
        folder.path.rmdir()
