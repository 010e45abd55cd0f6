"""The page of metrics of one process, in Prometheus' text format. Everything is collected when it is asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lockgate_common.metrics.family import Family, Histogram, Kind
from lockgate_common.metrics.samples import Samples
from lockgate_common.recurring_log import RecurringLog

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

Part = Callable[[Samples], None]

INCOMPLETE = Family(
    "lockgate_metrics_incomplete", Kind.GAUGE, "1 when a part of this page could not be collected, else 0."
)


class MetricsPage:
    """parts: each adds samples; one that raises is left out of this page. One page is made at a time."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)
        self._trouble = RecurringLog()
        self._registry: CollectorRegistry | None = None
        self._lock = threading.Lock()

    def render(self) -> tuple[str, bytes]:
        """The content type and the page. Blocks for as long as the parts do, which wait for the process's threads."""
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest  # the page may never be requested

        with self._lock:
            return CONTENT_TYPE_LATEST, generate_latest(self._registry or self._registered())

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client."""
        samples, is_incomplete = Samples(), False
        for part in self._parts:
            try:
                part(samples)
            except Exception as error:
                is_incomplete = True
                self._trouble.warning(log, repr(part), "a part of the metrics could not be collected: %s", error)
        samples.add(INCOMPLETE, float(is_incomplete))
        for family, values in samples:
            yield _metric(family, values)

    def _registered(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry, ProcessCollector

        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(self)
        self._registry = registry
        return registry


def _metric(family: Family, values: Sequence[tuple[tuple[str, ...], float | Histogram]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.text, labels=family.labels)
        for labels, value in values:
            assert isinstance(value, Histogram)
            histogram.add_metric(labels, *value.buckets())
        return histogram
    make = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    simple = make(family.name, family.text, labels=family.labels)
    for labels, value in values:
        assert not isinstance(value, Histogram)
        simple.add_metric(labels, value)
    return simple
