"""What benchmarks.abs makes of its runs: rates, costs of a model, comparisons, a picture."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import AttemptId, CompletedCheckpoint, Partitioning, StoryLine, SubtaskSnapshot
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.story_text import event_text

from benchmarks import abs as abs_
from benchmarks.abs_costs import Observed, checkpoint_figures, commit_times_ms, costs_of, require_enough
from benchmarks.abs_job import NONE, Setting, graph
from benchmarks.abs_plot import plot
from benchmarks.abs_projection import compared, costs_from, inputs, leader_subtask_ms, projected, projection_rows
from benchmarks.abs_scale import scale_rows, scale_values
from benchmarks.abs_simulated import VERTICES, Costs
from benchmarks.job_run import JobRun
from lockgate.errors import UserError

COSTS = Costs((0.1, 0.1, 0.2, 0.1), (0.2,) * 4, (10.0,) * 4, commit_ms=15.0, leader_ms=12.0, leader_subtask_ms=0.06)
EACH_SECOND = Setting("exactly_once", 1000)


def _runs(*seconds: float) -> list[JobRun]:
    return [JobRun(item, 3) for item in seconds]


def test_the_cost_of_checkpoints_is_relative_to_the_run_without_them_in_the_same_round() -> None:
    runs = {NONE: _runs(10.0, 20.0, 10.0), abs_.SETTINGS[1]: _runs(12.5, 20.0, 11.0)}
    assert abs_.costs(runs) == {abs_.SETTINGS[1]: pytest.approx(1 / 11)}


def test_rates_are_those_without_checkpoints_less_what_a_setting_costs() -> None:
    values = abs_.interval_values({NONE: _runs(10.0, 10.0), EACH_SECOND: _runs(12.5, 12.5)}, 1000)
    assert values["rows_per_s"] == {"none": pytest.approx(200), "exactly_once-1000": pytest.approx(160)}
    assert values["checkpoints"]["exactly_once-1000"] == [2, 2]  # without the last one, which ends the job


@pytest.mark.parametrize("subtasks", [1, 2, 8])
def test_the_job_has_the_vertices_of_the_model_from_source_to_sink(subtasks: int, tmp_path: Path) -> None:
    made = graph(EACH_SECOND, tmp_path / "sums.db", 100, subtasks)
    names = [vertex.id for vertex in made.vertices]
    assert len(names) == VERTICES
    assert [(edge.source, edge.target) for edge in made.edges] == list(pairwise(names))
    assert [edge.partitioning for edge in made.edges] == [Partitioning.HASH] * 3
    assert {vertex.parallelism for vertex in made.vertices} == {subtasks}


def test_runs_with_more_subtasks_are_compared_in_pairs() -> None:
    runs = {1: {NONE: _runs(4.0, 5.0), EACH_SECOND: _runs(4.4, 5.0)}, 8: {NONE: _runs(9.0), EACH_SECOND: _runs(9.9)}}
    values = scale_values(runs, 1_000_000, 1000)
    assert values["runtime"] == {"1": pytest.approx(1.05), "8": pytest.approx(1.1)}
    assert values["seconds"]["8"] == {"none": [9.0], "exactly_once-1000": [9.9]}
    assert [row.measured for row in scale_rows(values)] == [
        "4.50 s, 4.70 s: 1.050 times",
        "9.00 s, 9.90 s: 1.100 times",
    ]


def _line(at_ms: int, place: str, event: str) -> StoryLine:
    return StoryLine(f"{place}-{at_ms}", unix_us=1000 * at_ms, process="tm-0", place=place, event=event)


def _commit(at_ms: int, took_ms: int, place: str, number: int) -> list[StoryLine]:
    return [
        _line(at_ms, place, f"checkpoint {number} is complete, the leader says"),
        _line(at_ms + took_ms, place, f"the output up to checkpoint {number} is visible"),
    ]


def test_a_commit_lasts_from_the_leaders_word_to_visible_output() -> None:
    lines = [*_commit(100, 30, "sums[0]", 1), *_commit(105, 50, "sums[1]", 1), *_commit(100, 1, "filter[0]", 1)]
    assert sorted(commit_times_ms(reversed(lines), "sums")) == [30.0, 50.0]
    assert commit_times_ms(lines[1:2], "sums") == []


def test_the_storys_words_of_a_commit_are_those_of_the_task_manager() -> None:
    words = [event_text(on.CompleteReceived(AttemptId(), 7)), event_text(on.CommitDone(7, True))]
    assert commit_times_ms([_line(10 * n, "sums[0]", text) for n, text in enumerate(words)], "sums") == [10.0]


def _observed() -> Observed:
    vertices = ("made", "keyed", "kept", "sums")
    parts = tuple(
        SubtaskSnapshot(vertex, subtask, "tm-0", 40 + subtask, 0, 0, 200 + 100 * subtask, 8, 5)
        for vertex in vertices
        for subtask in (0, 1)
    )
    busy = Counter({"made": 100, "keyed": 200, "kept": 500, "sums": 200})
    lines = {line.id: line for line in _commit(100, 30, "sums[0]", 5)}
    checkpoint = CompletedCheckpoint(5, duration_ms=51, longest_sync_us=300, longest_alignment_ms=5)
    return Observed(busy, {5: checkpoint}, {5: parts}, lines)


def test_costs_are_medians_and_shares_of_what_was_observed() -> None:
    found = costs_of(_observed(), ("made", "keyed", "kept", "sums"), node_s=10.0, rows=10_000_000)
    assert found.record_us == pytest.approx((0.1, 0.2, 0.5, 0.2))
    assert found.sync_ms == pytest.approx((0.25,) * 4)
    assert found.store_ms == (8.0,) * 4
    assert found.commit_ms == 30.0
    assert found.leader_ms == pytest.approx(51 - 41 - 8 * found.leader_subtask_ms)


def test_a_run_without_checkpoints_is_too_short() -> None:
    vertices = ("made", "keyed", "kept", "sums")
    require_enough(_observed(), vertices)
    for part in ("parts", "lines", "busy"):
        found = _observed()
        getattr(found, part).clear()
        with pytest.raises(UserError, match="--rows"):
            require_enough(found, vertices)


def test_a_subtasks_part_of_a_checkpoint_is_the_slope_between_two_sizes() -> None:
    runs = [{"subtasks": 1_000, "checkpoint_ms": 54.0}, {"subtasks": 100, "checkpoint_ms": 18.0}]
    assert leader_subtask_ms({"runs": runs}) == pytest.approx(0.04)
    with pytest.raises(UserError, match="--subtasks"):
        leader_subtask_ms({"checkpoint_ms": 54.0})


def _values() -> dict[str, Any]:
    seconds = {NONE: _runs(8.0, 8.0), EACH_SECOND: _runs(8.2, 8.2), Setting("stop_the_world", 1000): _runs(9.0, 9.0)}
    values = abs_.interval_values(seconds, 14_000_000)
    scale = {1: {NONE: _runs(7.5), EACH_SECOND: _runs(7.7)}, 4: {NONE: _runs(15.0), EACH_SECOND: _runs(15.4)}}
    return {
        **values,
        "scale": scale_values(scale, 13_000_000, 1000),
        "model": inputs(COSTS, 1.0, checkpoint_figures(_observed())),
    }


def test_the_model_is_compared_where_nodes_were_measured() -> None:
    found = compared(_values(), COSTS)
    assert [(item["subtasks"], item["setting"]) for item in found] == [
        (2, "exactly_once-1000"),
        (2, "stop_the_world-1000"),
        (1, "exactly_once-1000"),
    ]
    assert found[0]["measured"] == pytest.approx(8.2 / 8)
    assert all(item["model"] >= 1 for item in found)


def test_costs_are_read_back_from_the_json_file() -> None:
    assert costs_from(json.loads(json.dumps(_values()))) == COSTS
    with pytest.raises(UserError, match="--simulate"):
        costs_from({})


@pytest.mark.spark
def test_all_that_was_found_is_drawn_and_simulated_lines_say_so(tmp_path: Path) -> None:
    values = _values()
    values["simulated"] = projected(values, [1, 2], 3000)
    assert set(values["simulated"]["checkpoint"]) == set(values["model"]["observed"])
    rows = [row.name for row in projection_rows(values)]
    assert all("simulated" in name or "model" in name for name in rows)
    plot(values, tmp_path / "abs.svg")
    text = (tmp_path / "abs.svg").read_text()
    assert "<svg" in text
    plot(abs_.interval_values({NONE: _runs(8.0), EACH_SECOND: _runs(8.0)}, 100), tmp_path / "abs.png")
    assert (tmp_path / "abs.png").read_bytes().startswith(b"\x89PNG")
