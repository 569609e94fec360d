"""Everything that Dray counts, for Prometheus.

One `Metrics` belongs to one broker and has a registry of its own, so several brokers can live
in one process (tests do that). Times are in seconds and sizes in bytes, as Prometheus wants
it; percentiles come from the histograms (`histogram_quantile`).

Invariant: a label's values come from a fixed, small set (APIs, operations, error names), never
from clients: no topics, no client ids.

Metrics with labels are mappings whose children are made at first use and then found by one
dictionary look-up: `metrics.request_seconds["Produce"].observe(seconds)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics import disable_created_metrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from drayd import __version__
from wal.observed import Observation

SECONDS_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
BYTES_BUCKETS = tuple(float(1024 * 4**power) for power in range(10))  # 1 KiB … 256 MiB
COUNT_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

# A creation time beside every counter would double the page for nothing that we use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left it untyped

_Key = TypeVar("_Key")
_Metric = TypeVar("_Metric")


class Children(dict[_Key, _Metric], Generic[_Key, _Metric]):
    """The children of a metric by label value; a new one is made when first asked for."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[_Key], _Metric]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: _Key) -> _Metric:
        child = self[key] = self._make(key)
        return child


class _GroupsByState(Collector):
    def __init__(self, count: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._count = count

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "dray_groups",
            "Consumer groups that this broker runs, by type and state.",
            labels=("type", "state"),
        )
        for (kind, state), number in sorted(self._count().items()):
            family.add_metric((kind, state), number)
        yield family


class Metrics:
    """The broker's metrics, grouped as in the code that reports them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._gauge("build_info", "Always 1; the version is the label.", "version").labels(
            __version__
        ).set(1)

        self._requests()
        self._write_path()
        self._read_path()
        self._stores()
        self._consumer_groups()

    def observe_object_store(self, seen: Observation) -> None:
        """Report one call of the object store; the observer of `wal.observed.Observed`."""
        self.object_store_seconds[seen.operation].observe(seen.seconds)
        if seen.byte_count:
            self.object_store_bytes[seen.operation].inc(seen.byte_count)
        # A call that we gave up ourselves says nothing about the store.
        if seen.outcome not in ("ok", "cancelled"):
            self.object_store_errors[seen.operation, seen.outcome].inc()

    def observe_metadata(self, operation: str, seconds: float) -> None:
        """Report one operation of the metadata store; the observer of `SqliteStore.open`."""
        self.metadata_seconds[operation].observe(seconds)

    def _requests(self) -> None:
        self.request_seconds = self._histograms(
            "request_seconds", "From a request's last byte to its answer, by API.", "api"
        )
        self.request_errors = self._counters2(
            "request_errors", "Requests that failed as a whole, by API and code.", "api", "code"
        )
        self.requests_waiting_bytes = self._gauge(
            "request_bytes_in_flight", "Bytes of requests that were read and not yet answered."
        )
        self.connections_active = self._gauge("connections_active", "Open client connections.")
        self.connections_accepted = self._counter(
            "connections_accepted", "Client connections accepted so far."
        )
        self.connections_closed = self._counters(
            "connections_closed", "Client connections that the broker closed, by reason.", "reason"
        )
        self.throttle_seconds = self._histograms(
            "throttle_seconds", "How long clients over a quota had to wait, by quota.", "quota"
        )
        self.received_bytes = self._counter("received_bytes", "Bytes read from clients.")
        self.sent_bytes = self._counter("sent_bytes", "Bytes written to clients.")

    def _write_path(self) -> None:
        self.produce_seconds = self._histogram(
            "produce_seconds", "From a Produce request's last byte to its acknowledgement."
        )
        self.produced_bytes = self._counter(
            "produced_bytes", "Bytes of acknowledged record batches."
        )
        self.produced_records = self._counter("produced_records", "Acknowledged records.")
        self.produce_rejected = self._counters(
            "produce_rejected", "Partitions of Produce requests answered with an error.", "code"
        )
        self.wal_flush_bytes = self._histogram(
            "wal_flush_bytes", "Sizes of WAL objects.", BYTES_BUCKETS
        )
        self.wal_flush_seconds = self._histogram(
            "wal_flush_seconds", "From sealing a WAL object until it is stored."
        )
        self.wal_objects_in_flight = self._gauge(
            "wal_objects_in_flight", "WAL objects sealed and not yet committed."
        )
        self.wal_buffered_bytes = self._gauge(
            "wal_buffered_bytes", "Bytes gathered for WAL objects that are not sealed yet."
        )
        self.wal_put_retries = self._counter("wal_put_retries", "PUTs of WAL objects repeated.")
        self.commit_seconds = self._histogram(
            "commit_seconds", "Metadata commits of WAL objects, retries included."
        )
        self.commit_objects = self._histogram(
            "commit_objects", "WAL objects in one commit.", COUNT_BUCKETS
        )
        self.commit_retries = self._counter(
            "commit_retries", "Commits begun again because something they had read changed."
        )
        self.commit_unknown = self._counter(
            "commit_unknown", "Commits whose outcome had to be looked up."
        )

    def _read_path(self) -> None:
        self.fetch_seconds = self._histogram(
            "fetch_seconds",
            "From a Fetch request's last byte to its answer, without the wait for new records.",
        )
        self.fetched_bytes = self._counter("fetched_bytes", "Bytes of record batches fetched.")
        self.fetches_waiting = self._gauge(
            "fetches_waiting", "Fetch requests that wait for new records."
        )
        self.fetch_failed = self._counters(
            "fetch_failed", "Partitions of Fetch requests answered with an error.", "code"
        )
        self.hot_cache_bytes = self._gauge("hot_cache_bytes", "Bytes held by the hot cache.")
        self.hot_cache_hits = self._counter("hot_cache_hits", "Reads served by the hot cache.")
        self.hot_cache_misses = self._counter(
            "hot_cache_misses", "Reads that had to go to the object store."
        )
        self.object_reads_failed = self._counters(
            "object_reads_failed", "Reads of objects that were corrupt or missing.", "reason"
        )

    def _stores(self) -> None:
        self.metadata_seconds = self._histograms(
            "metadata_seconds", "Metadata store operations, by operation.", "operation"
        )
        self.metadata_errors = self._counters2(
            "metadata_errors", "Metadata store operations that failed.", "operation", "error"
        )
        self.object_store_seconds = self._histograms(
            "object_store_seconds", "Object store operations, by operation.", "operation"
        )
        self.object_store_bytes = self._counters(
            "object_store_bytes", "Bytes moved to and from the object store.", "operation"
        )
        self.object_store_errors = self._counters2(
            "object_store_errors", "Object store operations that failed.", "operation", "error"
        )
        self.gc_orphans = self._gauge(
            "gc_orphans", "Staging markers of WAL objects that were never committed."
        )
        self.gc_pending_deletes = self._gauge(
            "gc_pending_deletes", "WAL objects that nothing refers to and that await deletion."
        )

    def _consumer_groups(self) -> None:
        self.group_rebalances = self._counters(
            "group_rebalances", "Rebalances of consumer groups that began, by type.", "type"
        )
        self.group_offset_commits = self._counter(
            "group_offset_commits", "Committed offsets that were stored."
        )

    def watch_groups(self, count: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        """Show how many groups of each type are in each state, counted when it is asked for."""
        self.registry.register(_GroupsByState(count))

    def _counter(self, name: str, doc: str, *labels: str) -> Counter:
        return Counter(name, doc, labels, namespace="dray", registry=self.registry)

    def _gauge(self, name: str, doc: str, *labels: str) -> Gauge:
        return Gauge(name, doc, labels, namespace="dray", registry=self.registry)

    def _histogram(
        self, name: str, doc: str, buckets: tuple[float, ...] = SECONDS_BUCKETS, *labels: str
    ) -> Histogram:
        return Histogram(
            name, doc, labels, namespace="dray", registry=self.registry, buckets=buckets
        )

    def _counters(self, name: str, doc: str, label: str) -> Children[str, Counter]:
        return Children(self._counter(name, doc, label).labels)

    def _counters2(
        self, name: str, doc: str, first: str, second: str
    ) -> Children[tuple[str, str], Counter]:
        parent = self._counter(name, doc, first, second)
        return Children(lambda pair: parent.labels(*pair))

    def _histograms(self, name: str, doc: str, label: str) -> Children[str, Histogram]:
        return Children(self._histogram(name, doc, SECONDS_BUCKETS, label).labels)
