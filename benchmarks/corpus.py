"""Text with a known number of words, the same at each call."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks.common import say

_VOCABULARY = 10_000
_WORDS_PER_LINE = 12


def ensure(base: Path, words: int, files: int) -> Path:
    """The folder with `words` words in `files` text files; made on first use, Zipf-like over 10,000 words."""
    folder = base / f"words-{words}-{files}-{_VOCABULARY}"
    if folder.is_dir():
        return folder
    say(f"making {words:,} words in {files} files in {folder} ...")
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    vocabulary = _vocabulary()
    weights = 1.0 / (np.arange(_VOCABULARY) + 10.0)
    weights /= weights.sum()
    for number in range(files):
        count = words // files + (1 if number < words % files else 0)
        chosen = vocabulary[np.random.default_rng(number).choice(_VOCABULARY, size=count, p=weights)]
        (fresh / f"part-{number:03d}.txt").write_text(_lines(chosen.tolist()), encoding="ascii")
    fresh.rename(folder)
    return folder


def _vocabulary() -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    generator = np.random.default_rng(2024)
    found: dict[str, None] = {}
    while len(found) < _VOCABULARY:
        found["".join(generator.choice(letters, size=int(generator.integers(2, 10))))] = None
    return np.array(list(found))


def _lines(words: list[str]) -> str:
    return "\n".join(" ".join(words[at : at + _WORDS_PER_LINE]) for at in range(0, len(words), _WORDS_PER_LINE)) + "\n"
