"""The check of the example that swaps a model: it accepts right results, and notices each kind of wrong one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.frame import Place
from examples.runnable import model_swap
from examples.runnable.model_swap import Fraud

pytestmark = pytest.mark.spark  # the example imports the pipeline's builder

Rows = dict[int, list[dict[str, Any]]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path / "in", tmp_path / "out", 7)
    found.input.mkdir()
    (found.output / "scored").mkdir(parents=True)
    return found


def scored(place: Place) -> Rows:
    """Payments by checkpoint: partitions 0 and 1 change over at different moments of the interval."""
    fraud, rows, at = Fraud(), Rows(), 0
    for checkpoint, model in enumerate((*model_swap._models(place), None), start=1):
        rows[checkpoint] = [fraud({"partition": partition, "sequence": at}) for partition in range(4)]
        rows[checkpoint] += [fraud({"partition": 0, "sequence": at + 1})]
        if model is not None:
            fraud.process_broadcast(model)
        rows[checkpoint] += [fraud({"partition": partition, "sequence": at + 1}) for partition in range(1, 4)]
        at += 2
    return rows


def judged(place: Place, rows: Rows) -> list[str]:
    for checkpoint, listed in rows.items():
        text = "".join(json.dumps(row) + "\n" for row in listed)
        (place.output / "scored" / f"part-r1-{checkpoint}-scores-0-0.json").write_text(text, encoding="utf-8")
    count = sum(map(len, scored(place).values()))
    (place.input / "generated").write_text(str(count), encoding="utf-8")
    return model_swap._check(place)


def test_a_right_result_is_right(place: Place) -> None:
    assert judged(place, scored(place)) == []
    assert model_swap._summary(place).startswith("payments by version: ")


def _exchange(rows: Rows) -> None:
    rows[2], rows[3] = rows[3], rows[2]


def _lose(rows: Rows) -> None:
    rows[3].pop()


def _repeat(rows: Rows) -> None:
    rows[3].append(rows[3][0])


def _score_by_another(rows: Rows) -> None:
    rows[3][0]["score"] += 1


def _stay(rows: Rows) -> None:
    """One partition of the last checkpoint is still scored by the first model."""
    first = Fraud()
    rows[5] = [row if row["partition"] else first(row) for row in rows[5]]


def _skip(rows: Rows) -> None:
    rows.update({number: [{**row, "version": min(row["version"], 3)} for row in rows[number]] for number in (4, 5)})


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_exchange, "checkpoint 3 has payments of version 1, and one before it has some of 3"),
        (_lose, "39 payments are scored, 39 different ones, and 40 were read"),
        (_repeat, "41 payments are scored, 40 different ones, and 40 were read"),
        (_score_by_another, "version and score of payment"),
        (_stay, "payment (0, 8) was scored by version 0, the one before it by a newer one"),
        (_skip, "no payment was scored by model 4"),
    ],
)
def test_each_wrong_result_is_noticed(place: Place, spoil: Callable[[Rows], None], text: str) -> None:
    rows = scored(place)
    spoil(rows)
    assert any(text in problem for problem in judged(place, rows))
