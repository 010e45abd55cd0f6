"""Debian's package `prometheus`, which tests use: promtool, the server itself, and its text format."""

from __future__ import annotations

import subprocess

from prometheus_client.parser import text_string_to_metric_families

from tests import debian

REQUIRED = "LOCKGATE_TEST_PROMETHEUS"
"""Set to `required` where a skip is to count as a failure."""

Sample = tuple[str, frozenset[tuple[str, str]]]


def program(name: str) -> str:
    """The path of promtool or prometheus, see `debian.program`."""
    return debian.program(name, "prometheus", REQUIRED)


def complaints(page: bytes) -> str:
    """What `promtool check metrics` finds; "" for nothing."""
    result = subprocess.run([program("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)
    text = (result.stdout + result.stderr).decode()
    return text or ("" if result.returncode == 0 else f"exit code {result.returncode}")


class Page:
    """What one scrape has found."""

    def __init__(self, page: bytes) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(page.decode())}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    @property
    def own_names(self) -> set[str]:
        """Names of families as they are declared, without those of prometheus_client itself."""
        found = {f"{name}_total" if family.type == "counter" else name for name, family in self.families.items()}
        return {name for name in found if name.startswith("lockgate_")}

    def get(self, name: str, **labels: str) -> float | None:
        """The value of one sample with exactly these labels; None when there is none."""
        return self._values.get((name, frozenset(labels.items())))

    def labels(self, name: str, label: str) -> set[str]:
        """The values of one label."""
        return {dict(labels)[label] for found, labels in self._values if found == name}
