"""Job graphs out of files that somebody else has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockgate import Job, count
from lockgate.pipeline.graph_file import GraphFileError, graph_text, read_graph, write_graph


def graph_of(name: str) -> Job:
    job = Job(name, parallelism=1)
    job.generate(rows=3).key_by("partition").aggregate(n=count()).write_parquet("/out")
    return job


@pytest.mark.parametrize("suffix", [".json", ".pb"])
def test_a_written_graph_is_read_unchanged(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"graph{suffix}"
    write_graph(graph_of("a name: ä\N{GRINNING FACE}").graph(), path)
    assert read_graph(path) == graph_of("a name: ä\N{GRINNING FACE}").graph()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested more than 200 levels deep"),
        ('{"vertices": [' + '{"operators": [' * 60_000, "nested|not JSON"),
        ('{"name": "a", "name": "b"}', "the key 'name' twice"),
        ('{"name": "\\ud800"}', "half of a surrogate pair"),
        ('{"name": 1e999}', "too large"),
        ("[]", "is not a job graph"),
        ("7", "is not a job graph"),
        ("", "not JSON"),
    ],
)
def test_an_invalid_graph_file_is_refused_in_a_sentence(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(content)
    with pytest.raises(GraphFileError, match=words) as refused:
        read_graph(path)
    assert len(str(refused.value)) < 500


def test_a_sentence_that_quotes_a_whole_file_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(graph_text(graph_of("x").graph()).replace('"vertices"', f'"{"v" * 100_000}"', 1))
    with pytest.raises(GraphFileError) as refused:
        read_graph(path)
    assert str(refused.value).endswith("... (there is more)")
    assert len(str(refused.value)) < 5_000
