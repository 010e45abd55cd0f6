"""Payments of orders: each payment belongs to an order placed up to ten seconds before, or two seconds after it.

Both streams come out of order. A payment whose order is further away, or that has none, is in no pair.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as pq

from examples.frame import Example, Place
from examples.frame.example import compare, json_rows
from lockgate import Job

_FILES, _ORDERS, _CUSTOMERS = 2, 30_000, 500
_START_MS, _LENGTH_MS, _DISORDER_MS = 1_772_323_200_000, 300_000, 2_000  # from 2026-03-01 on
_BEFORE_MS, _AFTER_MS = 2_000, 10_000


def _make_input(place: Place) -> int:
    choice = place.random()
    records = 0
    for name in ("orders", "payments"):
        (place.input / name).mkdir()
    for number in range(_FILES):
        orders, payments = [], []
        for row in range(_ORDERS):
            at = _START_MS + _LENGTH_MS * row // _ORDERS - choice.randrange(_DISORDER_MS)
            customer = f"customer{choice.randrange(_CUSTOMERS):03d}"
            orders.append({"at": at, "customer": customer, "order": number * _ORDERS + row})
            if choice.random() < 0.9:
                paid = at + choice.randrange(-_BEFORE_MS, _AFTER_MS + 5_000)
                payments.append((paid + choice.randrange(_DISORDER_MS), {"at": paid, "payer": customer, "cents": row}))
        ordered = [payment for _, payment in sorted(payments, key=lambda payment: payment[0])]
        for name, lines in (("orders", orders), ("payments", ordered)):
            text = "\n".join(map(json.dumps, lines)) + "\n"
            (place.input / name / f"{number}.json").write_text(text, encoding="utf-8")
            records += len(lines)
    return records


def _pipeline(place: Place) -> Job:
    job = Job("interval join", parallelism=2, checkpoint_interval_ms=500)
    orders = job.read_json(place.input / "orders", schema="at BIGINT, customer STRING, order BIGINT")
    orders = orders.event_time("at", out_of_order="2 seconds")
    payments = job.read_json(place.input / "payments", schema="at BIGINT, payer STRING, cents BIGINT")
    payments = payments.event_time("at", out_of_order="2 seconds")
    pairs = orders.key_by("customer").interval_join(
        payments.key_by("payer"), lower="-2 seconds", upper="10 seconds", right_prefix="paid_"
    )
    pairs.select("order", "at", "paid_at", "paid_cents").write_parquet(place.output / "pairs")
    return job


def _read(folder: Path, key: str) -> dict[str, list[tuple[int, int]]]:
    """Time and number by customer."""
    found = defaultdict(list)
    for json_row in json_rows(folder.iterdir()):
        found[json_row[key]].append((json_row["at"], json_row["order" if key == "customer" else "cents"]))
    return found


def _check(place: Place) -> list[str]:
    orders = _read(place.input / "orders", "customer")
    payments = _read(place.input / "payments", "payer")
    wanted = Counter(
        (order, at, paid, cents)
        for customer, placed in orders.items()
        for at, order in placed
        for paid, cents in payments[customer]
        if at - _BEFORE_MS <= paid <= at + _AFTER_MS
    )
    table = pq.read_table(place.output / "pairs")
    found = Counter(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))
    return compare(found, wanted, "count of")


EXAMPLE = Example("orders and payments joined by customer and time", _make_input, _pipeline, _check)
