"""docs/metrics.md, the alert rules and the Grafana dashboard against the metrics that the code has."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from lockgate_common.json_input import parse_json
from lockgate_common.metrics.family import Family, Kind
from lockgate_coordinator.runtime import metric_families as of_coordinators
from lockgate_taskmanager.runtime import metric_families as of_task_managers

from tests.prometheus import program

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docker/monitoring"
FAMILIES = {family.name: family for family in (*of_coordinators.FAMILIES, *of_task_managers.FAMILIES)}
NAME = re.compile(r"\b(?:lockgate|process)_\w+")
SELECTED = re.compile(r"(\w+)\{([^}]*)\}")


def _page() -> str:
    return (ROOT / "docs/metrics.md").read_text(encoding="utf-8")


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind.value} | {labels} | {family.text} |"


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    dashboard = parse_json((FOLDER / "grafana.json").read_text(encoding="utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def _expressions() -> list[str]:
    queries = [target["expr"] for panel in _panels() for target in panel["targets"]]
    return [rule["expr"] for rule in _rules()] + [query.replace("$job_key", ".*") for query in queries]


def test_the_page_lists_every_metric_as_the_code_has_it() -> None:
    missing = [_row(family) for family in FAMILIES.values() if _row(family) not in _page().splitlines()]
    assert not missing


def test_the_page_lists_no_metric_that_is_not_there() -> None:
    listed = re.findall(r"^\| `(lockgate_\w+)` \|", _page(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == set(FAMILIES)


def test_the_page_lists_every_alert() -> None:
    listed = re.findall(r"^\| `(Lockgate\w+)` \|", _page(), re.MULTILINE)
    assert listed == [rule["alert"] for rule in _rules()]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_names_follow_prometheus(family: Family) -> None:
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert not re.search(r"_(ms|us|millis|kb|mb|minutes)(_|$)", family.name), "base units"
    assert family.text.endswith(".")
    assert not {"job", "instance", "le"}.intersection(family.labels), "Prometheus sets these itself"


def test_expressions_use_metrics_and_labels_that_exist() -> None:
    suffixes = ("_bucket", "_sum", "_count")
    for expression in _expressions():
        for name in NAME.findall(expression):
            bare = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
            assert name.startswith("process_") or name in FAMILIES or FAMILIES[bare].kind is Kind.HISTOGRAM, expression
        for name, matchers in SELECTED.findall(expression):
            used = set(re.findall(r"(\w+)\s*=", matchers))
            known = FAMILIES.get(name) or FAMILIES.get(name.removesuffix("_bucket"))
            assert name == "up" or (known is not None and used <= set(known.labels)), expression


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == {rule["alert"] for rule in _rules()}
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == {rule["alert"] for rule in _rules()}


def test_the_alert_rules_pass_their_own_tests() -> None:
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        result = subprocess.run(
            [program("promtool"), *command], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_can_parse_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"lockgate:{number}", "expr": expression} for number, expression in enumerate(_expressions())]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}), encoding="utf-8")
    result = subprocess.run([program("promtool"), "check", "rules", file], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_panels_do_not_overlap_and_have_titles() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in _panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"]
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
