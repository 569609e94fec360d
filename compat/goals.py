"""The goals: what each figure is compared with, and whether it is met.

A goal is met or missed only where every number that it needs was measured; otherwise the verdict
is a dash. Kafka "synced" writes as durably as Dray does; "default" answers before the data are on
disk and is shown for orientation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from compat.measures import DELAYS_MS, PARTITIONS, SIZES, Measures

DRAY, SYNCED, DEFAULT = "dray", "kafka-synced", "kafka-default"

PRODUCE_FACTOR, DISK_FACTOR = 1.2, 0.8
PRODUCE_CPU_FACTOR, PRODUCE_CPU_NEXT = 1.0, 0.8
HOT_FACTOR, COLD_FACTOR, CONSUME_CPU_FACTOR = 0.9, 0.7, 1.2
END_TO_END_FACTOR, ACK_FACTOR = 2.0, 1.5
START_S, IDLE_MB, CONNECTIONS_MB = 2.0, 150.0, 100.0
TOPICS_PER_S, MANY_TOPICS_FACTOR = 100.0, 2.0
DELAYED_MB_PER_S = {20: 200.0, 100: 100.0}
# The latency tools print whole milliseconds: 1.9 and 1.1 both read 1.
LATENCY_STEP_MS = 1.0
RATE_KEPT = 9_500.0
HEARTBEAT_CORES, COMMITS_PER_S, COMMIT_FACTOR = 0.1, 3_000.0, 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    what: str
    unit: str
    values: dict[str, float | None]
    goal: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        """The last column."""
        if not self.goal:
            return ""
        return {True: "met", False: "**missed**", None: "-"}[self.met]


@dataclass(frozen=True, slots=True)
class Results:
    """Every server's measures, and the disk's own speed."""

    servers: dict[str, Measures]
    disk_mb_per_s: float | None

    def value(self, server: str, measure: str, field: str) -> float | None:
        """A number, if it was measured."""
        return self.servers.get(server, {}).get(measure, {}).get(field)

    def values(self, measure: str, field: str) -> dict[str, float | None]:
        """That number for each server."""
        return {server: self.value(server, measure, field) for server in (DRAY, SYNCED, DEFAULT)}


def rows(results: Results) -> list[Row]:
    """The whole table, in the order of the goals."""
    table: list[Row] = []
    for build in (_produce, _delayed, _consume, _latency, _start, _topics, _singles, _groups):
        table.extend(build(results))
    return table


def _produce(results: Results) -> list[Row]:
    table = []
    for size in SIZES:
        for partitions in PARTITIONS:
            measure = f"produce/{size}/{partitions}"
            label = f"produce {_size(size)}, {_partitions(partitions)}"
            speed = results.values(measure, "mb_per_s")
            bound = _smaller(
                _times(speed[SYNCED], PRODUCE_FACTOR), _times(results.disk_mb_per_s, DISK_FACTOR)
            )
            table.append(_at_least(label, "MB/s", speed, bound))
            table.append(Row(label, "records/s", results.values(measure, "records_per_s")))
            cpu = results.values(measure, "cpu_s_per_gb")
            table.append(_produce_cpu(label, cpu) if size == 1_000 else Row(label, "CPU-s/GB", cpu))
            table.append(Row(label, "peak MB", results.values(measure, "peak_rss_mb")))
    return table


def _produce_cpu(label: str, cpu: dict[str, float | None]) -> Row:
    row = _at_most(label, "CPU-s/GB", cpu, _times(cpu[SYNCED], PRODUCE_CPU_FACTOR))
    following = _times(cpu[SYNCED], PRODUCE_CPU_NEXT)
    return row if following is None else replace(row, goal=f"{row.goal}, then {number(following)}")


def _delayed(results: Results) -> list[Row]:
    table = []
    for delay_ms in DELAYS_MS:
        label = f"produce 1 kB, one connection, PUT + {delay_ms} ms"
        speed = results.values(f"delay/{delay_ms}/64", "mb_per_s")
        bound = DELAYED_MB_PER_S[delay_ms]
        table.append(_at_least(f"{label}, 64 in flight", "MB/s", speed, bound))
        speed = results.values(f"delay/{delay_ms}/5-idempotent", "mb_per_s")
        table.append(Row(f"{label}, idempotent, 5 in flight", "MB/s", speed))
    return table


def _consume(results: Results) -> list[Row]:
    table = []
    for measure, label, factor in (
        ("consume/hot", "consume 1 kB, hot", HOT_FACTOR),
        ("consume/disk", "consume 1 kB, after a restart", COLD_FACTOR),
    ):
        speed = results.values(measure, "mb_per_s")
        table.append(_at_least(label, "MB/s", speed, _times(_best(speed, max), factor)))
        cpu = results.values(measure, "cpu_s_per_gb")
        table.append(_at_most(label, "CPU-s/GB", cpu, _times(_best(cpu, min), CONSUME_CPU_FACTOR)))
        table.append(Row(label, "peak MB", results.values(measure, "peak_rss_mb")))
    return table


def _latency(results: Results) -> list[Row]:
    table = _latencies(results, "end_to_end", "end to end 1 kB, acks=all", END_TO_END_FACTOR)
    label = "ack at 10,000 records/s of 1 kB"
    reached = results.values("ack", "records_per_s")
    kept = [rate for rate in (reached[DRAY], reached[SYNCED]) if rate is not None]
    latencies = _latencies(results, "ack", label, ACK_FACTOR)
    if kept and max(kept) < RATE_KEPT:
        # Then the figures are lengths of queues, which say nothing about acknowledgements.
        latencies = [
            replace(row, goal="neither kept the rate", met=None) if row.goal else row
            for row in latencies
        ]
    return [*table, *latencies, Row(f"{label}, rate kept", "records/s", reached)]


def _latencies(results: Results, measure: str, label: str, factor: float) -> list[Row]:
    table = []
    for field, name in (("p50_ms", "p50"), ("p99_ms", "p99")):
        values = results.values(measure, field)
        synced = values[SYNCED]
        bound = None if synced is None else max(synced, LATENCY_STEP_MS) * factor
        table.append(_at_most(f"{label}, {name}", "ms", values, bound))
    table.append(Row(f"{label}, average", "ms", results.values(measure, "average_ms")))
    return table


def _start(results: Results) -> list[Row]:
    label = "2,000 idle connections, more memory"
    return [
        _at_most("start to first Metadata", "s", results.values("start", "s"), START_S),
        _at_most("memory at rest", "MB", results.values("start", "idle_rss_mb"), IDLE_MB),
        _at_most(label, "MB", results.values("start", "connections_rss_mb"), CONNECTIONS_MB),
    ]


def _topics(results: Results) -> list[Row]:
    few = results.values("many_topics", "with_ten_p50_ms")
    many = results.values("many_topics", "with_all_p50_ms")
    count = results.value(DRAY, "many_topics", "count")
    label = f"Metadata for one of {count or 10_000:,.0f} topics, p50"
    speed = results.values("topics", "per_s")
    return [
        _at_least("topics created one by one, usable", "per s", speed, TOPICS_PER_S),
        Row("Metadata for one of ten topics, p50", "ms", few),
        _at_most(label, "ms", many, _times(few[DRAY], MANY_TOPICS_FACTOR)),
    ]


def _singles(results: Results) -> list[Row]:
    table = []
    for measure, label in (
        ("singles/produce", "produce requests of one record of 100 B"),
        ("singles/read", "read them back"),
        ("singles/read_after_restart", "read them back after a restart"),
    ):
        table.append(Row(label, "s per million", results.values(measure, "s_per_million")))
        table.append(Row(label, "MB/s", results.values(measure, "mb_per_s")))
    written = results.values("singles/produce", "records")
    table.append(Row("how many were written", "records", written))
    return table


def _groups(results: Results) -> list[Row]:
    table = []
    for protocol in ("classic", "consumer"):
        for field, label in (
            ("first_s", "first member until assigned"),
            ("second_s", "second member until 8 + 8 of 16 partitions"),
        ):
            values = results.values(f"groups/join/{protocol}", field)
            # A group isn't kept on disk by syncing here: the better of Kafka's two runs counts.
            table.append(_at_most(f"{protocol} group, {label}", "s", values, _best(values, min)))
    beats = "1,000 groups of 2, a heartbeat every 3 s"
    cores = results.values("groups/heartbeats", "cores")
    table.append(_at_most(beats, "cores", cores, HEARTBEAT_CORES))
    commits = "commits of offsets, 64 in flight"
    per_s = results.values("groups/commit", "per_s")
    table.append(_at_least(commits, "per s", per_s, COMMITS_PER_S))
    p50 = results.values("groups/commit", "p50_ms")
    table.append(_at_most(commits, "p50 ms", p50, _times(_best(p50, min), COMMIT_FACTOR)))
    return table


def _at_least(what: str, unit: str, values: dict[str, float | None], bound: float | None) -> Row:
    return _bounded(what, unit, values, bound, "≥", lambda value, limit: value >= limit)


def _at_most(what: str, unit: str, values: dict[str, float | None], bound: float | None) -> Row:
    return _bounded(what, unit, values, bound, "≤", lambda value, limit: value <= limit)


def _bounded(
    what: str,
    unit: str,
    values: dict[str, float | None],
    bound: float | None,
    sign: str,
    holds: Callable[[float, float], bool],
) -> Row:
    if bound is None:
        return Row(what, unit, values, "not measured")
    value = values[DRAY]
    met = None if value is None else holds(value, bound)
    return Row(what, unit, values, f"{sign} {number(bound)}", met)


def _best(values: dict[str, float | None], best: Callable[[list[float]], float]) -> float | None:
    # Reading is the same with and without syncing: the better of Kafka's two runs counts.
    measured = [value for name, value in values.items() if name != DRAY and value is not None]
    return best(measured) if measured else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _smaller(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else min(first, second)


def _size(size: int) -> str:
    return f"{size} B" if size < 1_000 else f"{size // 1_000} kB"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def number(value: float | None) -> str:
    """Three digits or so."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
