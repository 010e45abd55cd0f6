"""The example files that the documentation tells people to submit: they run as written, and their results are right."""

from __future__ import annotations

import csv
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.frame.example import json_rows
from tests.chaos.testing_cluster import TestingCluster
from tests.debian import program

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 240  # a bound, not an expectation
RUBY = "LOCKGATE_TEST_RUBY"
"""Set to `required` where a skip is to count as a failure."""


def environment(testing: TestingCluster) -> dict[str, str]:
    """Of a user with the cluster's secret."""
    return {
        **os.environ,
        "LOCKGATE_CLUSTER": str(testing.cluster.directory),
        "LOCKGATE_SECRET_FILE": str(testing.cluster.secret_file),
    }


def run(testing: TestingCluster, folder: Path, *command: str) -> str:
    """A command as that user types it in `folder`. Returns what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment(testing),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def submit(testing: TestingCluster, folder: Path, example: str, *options: str) -> str:
    return run(testing, folder, "-m", "lockgate", "submit", str(EXAMPLES / example), *options)


def table(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def words(folder: Path) -> Counter[str]:
    """Of the text files in a folder and below, by the example's own rule."""
    text = "\n".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    return Counter(word for word in re.split(r"\W+", text.lower(), flags=re.ASCII) if word)


def test_the_word_count(testing: TestingCluster, tmp_path: Path) -> None:
    submit(testing, tmp_path, "wordcount.py", "--wait")
    assert Counter(dict(table(tmp_path / "wordcount.db", "SELECT word, n FROM counts"))) == words(
        EXAMPLES.parent / "docs"
    )


def test_the_orders(testing: TestingCluster, tmp_path: Path) -> None:
    submit(testing, tmp_path, "orders_csv.py", "--wait")
    with (EXAMPLES / "data" / "orders.csv").open(newline="") as file:
        paid = [row for row in csv.DictReader(file) if row["status"] == "paid"]
    amounts: dict[str, list[int]] = defaultdict(list)
    for row in paid:
        amounts[row["city"]].append(int(row["quantity"]) * int(row["price_cents"]))
    found = table(tmp_path / "orders.db", "SELECT city, orders, revenue_cents, mean_cents FROM revenue")
    assert [(city, n, total) for city, n, total, _ in sorted(found)] == [
        (city, len(amount), sum(amount)) for city, amount in sorted(amounts.items())
    ]
    for city, n, total, mean in found:
        assert Decimal(str(mean)) == pytest.approx(Decimal(total) / n, rel=Decimal("1e-9")), city
    written = {row["order_id"]: row["amount_cents"] for row in json_rows((tmp_path / "orders-paid").glob("part-*"))}
    assert written == {int(row["order_id"]): int(row["quantity"]) * int(row["price_cents"]) for row in paid}


def test_the_first_job(testing: TestingCluster, tmp_path: Path) -> None:
    """As docs/containers.md and docs/kubernetes.md have it submitted, and with what they look at the result."""
    output = tmp_path / "first"
    submit(testing, tmp_path, "first_job.py", "--wait", "--", str(output))
    for page in ("containers.md", "kubernetes.md"):
        text = (EXAMPLES.parent / "docs" / page).read_text(encoding="utf-8")
        (looks,) = re.findall(r"python3 -c \\\n *\"(.*?)\"\n", text)
        printed = run(testing, tmp_path, "-c", looks.replace("/var/lib/lockgate/results/first", str(output)))
        assert printed == "4000 rows\n"
        assert f"prints `{printed.strip()}`" in text


def test_a_graph_is_submitted_with_nothing_but_grpc(testing: TestingCluster, tmp_path: Path) -> None:
    """At the standby, which says who leads."""
    text = tmp_path / "text"
    text.mkdir()
    (text / "a.txt").write_text("to be or not to be\n")
    graph = run(
        testing, tmp_path, "-m", "lockgate", "submit", str(EXAMPLES / "wordcount.py"), "--dry-run", "--", str(text)
    )
    (tmp_path / "graph.json").write_text(graph)
    standby = testing.cluster.coordinators[1 - testing.leader_number()]
    printed = run(testing, tmp_path, str(EXAMPLES / "grpc_submit.py"), standby, "graph.json")
    assert f"{standby} is a standby" in printed
    assert "FINISHED" in printed
    assert Counter(dict(table(tmp_path / "wordcount.db", "SELECT word, n FROM counts"))) == words(text)


def test_a_client_in_ruby_follows_its_job_to_the_next_leader(testing: TestingCluster, tmp_path: Path) -> None:
    """It has the .proto files, and nothing else of Lockgate."""
    stubs, proto, output = tmp_path / "stubs", EXAMPLES.parent / "proto", tmp_path / "output"
    stubs.mkdir()
    protoc = [program("grpc_tools_ruby_protoc", "ruby-grpc-tools", RUBY), f"--ruby_out={stubs}", f"--grpc_out={stubs}"]
    subprocess.run([*protoc, "-I", proto, *proto.glob("lockgate_proto/v1/*.proto")], check=True, timeout=TIMEOUT_S)
    ruby = [program("ruby", "ruby-grpc", RUBY), "-I", str(stubs), str(EXAMPLES / "ruby" / "submit.rb")]
    client = subprocess.Popen(
        [*ruby, ",".join(testing.cluster.coordinators), str(output), "6000"],
        env=environment(testing),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert client.stdout is not None
        key, _, printed = client.stdout.readline().partition(" ")
        assert printed == "is submitted\n", client.communicate()
        testing.wait_until(lambda: testing.client.job(key).checkpoints_completed > 0, "a checkpoint")
        testing.kill_leader()
        printed, _ = client.communicate(timeout=TIMEOUT_S)
    finally:
        client.kill()
        client.wait()
    assert client.returncode == 0, printed
    assert "; looking for the leader\n" in printed
    assert "\n1200 rows, 1200 of them different, " in printed
    found = [(row["partition"], row["sequence"]) for row in json_rows(output.glob("part-*"))]
    assert sorted(found) == [(partition, sequence) for partition in range(2) for sequence in range(0, 6_000, 10)]
