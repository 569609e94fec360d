"""Metrics: names, labels, and that each can be reported."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from drayd import __version__
from drayd.metrics import Children, Metrics
from wal.observed import Observation


def exposed(metrics: Metrics) -> dict[str, float]:
    """Every sample, as name{label=value,…}."""
    return {
        sample.name
        + (
            "{" + ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())) + "}"
            if sample.labels
            else ""
        ): sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
    }


def test_what_is_reported_is_exposed() -> None:
    metrics = Metrics()
    metrics.request_seconds["Produce"].observe(0.0003)
    metrics.request_seconds["Produce"].observe(0.2)
    metrics.request_errors["Fetch", "NOT_COORDINATOR"].inc()
    metrics.connections_active.set(3)
    metrics.received_bytes.inc(100)
    metrics.wal_flush_bytes.observe(5000)
    metrics.commit_retries.inc()
    metrics.metadata_seconds["commit"].observe(0.001)
    metrics.object_store_bytes["put"].inc(42)
    metrics.produce_rejected["CORRUPT_MESSAGE"].inc()
    samples = exposed(metrics)
    assert samples["dray_request_seconds_count{api=Produce}"] == 2
    assert samples["dray_request_seconds_bucket{api=Produce,le=0.0005}"] == 1
    assert samples["dray_request_errors_total{api=Fetch,code=NOT_COORDINATOR}"] == 1
    assert samples["dray_connections_active"] == 3
    assert samples["dray_received_bytes_total"] == 100
    assert samples["dray_wal_flush_bytes_bucket{le=16384.0}"] == 1
    assert samples["dray_wal_flush_bytes_bucket{le=4096.0}"] == 0
    assert samples["dray_commit_retries_total"] == 1
    assert samples["dray_metadata_seconds_count{operation=commit}"] == 1
    assert samples["dray_object_store_bytes_total{operation=put}"] == 42
    assert samples["dray_produce_rejected_total{code=CORRUPT_MESSAGE}"] == 1
    assert samples[f"dray_build_info{{version={__version__}}}"] == 1
    assert samples["process_resident_memory_bytes"] > 0
    assert not [name for name in samples if "_created" in name]


def test_stores_report_through_their_observers() -> None:
    metrics = Metrics()
    metrics.observe_object_store(Observation("put", "ok", 0.004, 512))
    metrics.observe_object_store(Observation("put", "unavailable", 0.004, 0))
    metrics.observe_object_store(Observation("get", "cancelled", 0.004, 0))
    metrics.observe_metadata("commit", 0.002)
    samples = exposed(metrics)
    assert samples["dray_object_store_seconds_count{operation=put}"] == 2
    assert samples["dray_object_store_bytes_total{operation=put}"] == 512
    assert samples["dray_object_store_errors_total{error=unavailable,operation=put}"] == 1
    assert not [name for name in samples if "errors_total" in name and "get" in name]
    assert samples["dray_metadata_seconds_sum{operation=commit}"] == 0.002


def test_everything_is_documented_and_ours_has_our_prefix() -> None:
    text = generate_latest(Metrics().registry).decode()
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.name.startswith(("dray_", "process_", "python_gc_")), family.name


def test_children_are_made_once() -> None:
    metrics = Metrics()
    first = metrics.request_seconds["Metadata"]
    assert metrics.request_seconds["Metadata"] is first
    assert list(metrics.request_seconds) == ["Metadata"]


def test_brokers_in_one_process_do_not_share() -> None:
    one, other = Metrics(), Metrics()
    one.produced_records.inc(5)
    assert exposed(other)["dray_produced_records_total"] == 0


def test_every_attribute_is_registered() -> None:
    """What isn't in the registry would be counted and never shown."""
    metrics = Metrics()
    plain = {
        name: value
        for name, value in vars(metrics).items()
        if isinstance(value, Counter | Gauge | Histogram)
    }
    assert len(plain) > 15
    samples = exposed(metrics)
    for name in ("produce_seconds", "fetch_seconds", "wal_flush_seconds", "commit_seconds"):
        assert isinstance(plain[name], Histogram)
        assert samples[f"dray_{name}_count"] == 0
    for name in ("gc_orphans", "gc_pending_deletes", "hot_cache_bytes", "wal_objects_in_flight"):
        assert isinstance(plain[name], Gauge)
        assert samples[f"dray_{name}"] == 0
    for name in ("hot_cache_hits", "hot_cache_misses", "sent_bytes", "commit_unknown"):
        assert isinstance(plain[name], Counter)
        assert samples[f"dray_{name}_total"] == 0
    for name in ("object_reads_failed", "object_store_errors", "connections_closed"):
        assert isinstance(vars(metrics)[name], Children)
