"""What tests of Spark's own servers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .servers import TOKEN, TOKEN_NAME
from .word_count import write_words


@pytest.fixture(autouse=True, scope="module")
def token() -> Iterator[None]:
    """Clients of a Connect server here, and processes that they start, have its token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_NAME, TOKEN)
        yield


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder of text files, and its word counts."""
    folder = tmp_path_factory.mktemp("words")
    return folder, write_words(folder)
