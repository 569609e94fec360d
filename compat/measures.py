"""What the bench measures, in groups; each group gets servers of its own, with empty folders.

A measure is a name and a handful of numbers; ``goals`` reads them by name. Records and bytes are
those of the values; MB and GB are powers of ten.
"""

import contextlib
import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat import load, servers
from compat.servers import Server
from compat.wire import Wire, WireError

Measure = dict[str, float]
Measures = dict[str, Measure]
Factory = Callable[..., Server]

SIZES = (100, 1_000, 10_000)
PARTITIONS = (1, 16)
DELAYS_MS = (20, 100)
DISK_BLOCK_BYTES = 8 * 1024 * 1024
USABLE_TIMEOUT_S = 10.0
POLL_S = 0.001
WARM_UP_RECORDS = 300_000


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything; ``quick`` trades steadiness for time."""

    produce_bytes: float = 1e9
    produce_s: float = 6.0
    repeats: int = 3
    delay_s: float = 8.0
    idempotent_bytes: float = 4e8
    hot_bytes: float = 1.5e8
    hot_rounds: int = 8
    disk_bytes: float = 3e9
    singles: int = 1_000_000
    singles_s: float = 150.0
    latency_s: float = 15.0
    latency_warm_up_s: float = 10.0
    end_to_end_records: int = 5_000
    starts: int = 3
    connections: int = 2_000
    topics: int = 1_000
    many_topics: int = 10_000
    metadata_asks: int = 1_000
    join_rounds: int = 5
    commit_s: float = 8.0
    heartbeat_s: float = 15.0
    baseline_s: float = 3.0


QUICK = Scale(
    produce_bytes=5e8,
    produce_s=3.0,
    repeats=1,
    delay_s=4.0,
    idempotent_bytes=1e8,
    hot_bytes=1.5e8,
    hot_rounds=3,
    disk_bytes=1e9,
    singles=50_000,
    singles_s=20.0,
    latency_s=5.0,
    latency_warm_up_s=3.0,
    end_to_end_records=1_000,
    starts=1,
    connections=2_000,
    topics=100,
    many_topics=2_000,
    metadata_asks=300,
    join_rounds=2,
    commit_s=3.0,
    heartbeat_s=6.0,
    baseline_s=1.0,
)


def disk(folder: Path, seconds: float) -> float:
    """MB/s of the disk itself: 8 MiB writes to one file, each synced before the next."""
    block = os.urandom(DISK_BLOCK_BYTES)
    path = folder / "disk-baseline"
    written = 0
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            written += os.write(descriptor, block)
            os.fdatasync(descriptor)
        return written / (time.perf_counter() - began) / 1e6
    finally:
        os.close(descriptor)
        path.unlink()


def start(make: Factory, scale: Scale) -> Measures:
    """Start time, memory at rest, memory with idle connections."""
    measures: Measures = {}
    times: list[float] = []
    for i in range(scale.starts):
        with make(f"start-{i}") as server:
            times.append(server.start_s)
            if i < scale.starts - 1:
                continue
            idle = server.usage().rss_bytes
            with contextlib.ExitStack() as stack:
                for _ in range(scale.connections):
                    stack.enter_context(Wire(server.address)).api_versions()
                connected = server.usage().rss_bytes
            measures["start"] = {
                "s": statistics.median(times),
                "idle_rss_mb": idle / 1e6,
                "connections": scale.connections,
                "connections_rss_mb": (connected - idle) / 1e6,
            }
    return measures


def topics(make: Factory, scale: Scale) -> Measures:
    """Topics created one by one, each usable before the next."""
    with make("topics") as server, Wire(server.address) as wire:
        wire.create_topic("first", 1)
        _until_usable(wire, "first")
        began = time.perf_counter()
        retries = 0
        for i in range(scale.topics):
            wire.create_topic(f"one-by-one-{i}", 1)
            retries += _until_usable(wire, f"one-by-one-{i}")
        seconds = time.perf_counter() - began
    return {
        "topics": {
            "count": scale.topics,
            "per_s": scale.topics / seconds,
            "not_usable_at_answer": retries,
        }
    }


def many_topics(make: Factory, scale: Scale) -> Measures:
    """Metadata for one topic among ten, and among ten thousand."""
    with make("many-topics") as server, Wire(server.address) as wire:
        wire.create_topic("few-0", 1)
        for i in range(1, 10):
            wire.create_topic(f"few-{i}", 1)
        few_ms = _metadata_p50_ms(wire, "few-5", scale.metadata_asks)
        began = time.perf_counter()
        for i in range(10, scale.many_topics):
            wire.create_topic(f"many-{i}", 1)
        create_s = time.perf_counter() - began
        many_ms = _metadata_p50_ms(wire, f"many-{scale.many_topics // 2}", scale.metadata_asks)
    return {
        "many_topics": {
            "count": scale.many_topics,
            "with_ten_p50_ms": few_ms,
            "with_all_p50_ms": many_ms,
            "create_s": create_s,
        }
    }


def produce(make: Factory, scale: Scale) -> Measures:
    """librdkafka, acks=all, by record size and number of partitions."""
    measures: Measures = {}
    with make("produce") as server, Wire(server.address) as wire:
        _warm_up(server, wire)
        for size in SIZES:
            for partitions in PARTITIONS:
                runs = [
                    _produce_once(
                        server, wire, f"p-{size}-{partitions}-{i}", size, partitions, scale
                    )
                    for i in range(scale.repeats)
                ]
                measures[f"produce/{size}/{partitions}"] = _median(runs)
    return measures


def latency(make: Factory, scale: Scale) -> Measures:
    """End to end, and of the acknowledgement at a steady rate."""
    with make("latency") as server, Wire(server.address) as wire:
        _warm_up(server, wire)
        create_topic(wire, "end-to-end", 1)
        end_to_end = load.end_to_end(server, "end-to-end", records=scale.end_to_end_records)
        create_topic(wire, "ack", 1)
        with metered(server) as used:
            ack = load.ack_latency(
                server, "ack", seconds=scale.latency_s, warm_up_s=scale.latency_warm_up_s
            )
    return {"end_to_end": end_to_end._asdict(), "ack": ack._asdict() | used}


def consume(make: Factory, scale: Scale) -> Measures:
    """Records of 1 kB: just produced; and after a restart, more than the caches hold."""
    measures: Measures = {}
    with make("consume") as server:
        with Wire(server.address) as wire:
            _warm_up(server, wire)
            create_topic(wire, "cold", 1)
            cold = load.produce(server, "cold", max_bytes=scale.disk_bytes, max_seconds=60.0)
            create_topic(wire, "hot", 1)
            hot = load.produce(server, "hot", max_bytes=scale.hot_bytes, max_seconds=60.0)
        load.consume(server, "hot", records=hot.records)
        with metered(server) as used:
            rounds = [
                load.consume(server, "hot", records=hot.records) for _ in range(scale.hot_rounds)
            ]
        measures["consume/hot"] = _throughput(rounds, used)
        server.restart()
        load.consume(server, "warm-up", records=WARM_UP_RECORDS)
        with metered(server) as used:
            moved = load.consume(server, "cold", records=cold.records)
        measures["consume/disk"] = _throughput([moved], used)
    return measures


def singles(make: Factory, scale: Scale) -> Measures:
    """A million requests of one small record each, and reading them back after a restart."""
    with make("singles") as server:
        with Wire(server.address) as wire:
            _warm_up(server, wire)
            create_topic(wire, "singles", 1)
            with metered(server) as used:
                sent = load.produce(
                    server,
                    "singles",
                    size=100,
                    max_bytes=scale.singles * 100,
                    max_seconds=scale.singles_s,
                    settings=[
                        "linger.ms=0",
                        "batch.num.messages=1",
                        "max.in.flight=1000",
                        # What is queued is sent even when time is up: keep it small.
                        "queue.buffering.max.messages=5000",
                    ],
                )
            written = _throughput([sent], used)
        with metered(server) as used:
            warm = load.consume(server, "singles", records=sent.records, size=100)
        read_warm = _throughput([warm], used)
        server.restart()
        with metered(server) as used:
            cold = load.consume(server, "singles", records=sent.records, size=100)
    return {
        "singles/produce": written,
        "singles/read": read_warm,
        "singles/read_after_restart": _throughput([cold], used),
    }


def delayed(make: Factory, scale: Scale) -> Measures:
    """One connection while every PUT takes longer: 64 requests in flight, and 5 idempotent."""
    measures: Measures = {}
    for delay_ms in DELAYS_MS:
        settings = [f"storage.delay.put_ms={delay_ms}"]
        with make(f"delay-{delay_ms}", settings) as server, Wire(server.address) as wire:
            create_topic(wire, "in-flight-64", 1)
            with metered(server) as used:
                moved = load.produce(
                    server,
                    "in-flight-64",
                    max_bytes=scale.produce_bytes,
                    max_seconds=scale.delay_s,
                    settings=["max.in.flight=64", "enable.idempotence=false"],
                )
            measures[f"delay/{delay_ms}/64"] = _throughput([moved], used)
            create_topic(wire, "idempotent", 1)
            with metered(server) as used:
                moved = load.produce_idempotent(
                    server, "idempotent", max_bytes=scale.idempotent_bytes
                )
            idempotent = _throughput([moved], used)
            # The speed is that after the client's warm-up; the CPU went into all of it.
            idempotent["cpu_s_per_gb"] = used["cpu_s"] / (scale.idempotent_bytes / 1e9)
            measures[f"delay/{delay_ms}/5-idempotent"] = idempotent
    return measures


GROUPS: dict[str, Callable[[Factory, Scale], Measures]] = {
    "start": start,
    "topics": topics,
    "many_topics": many_topics,
    "produce": produce,
    "latency": latency,
    "consume": consume,
    "singles": singles,
    "delayed": delayed,
}

# Kafka has no PUTs to delay; ten thousand topics are measured against ten on the same server;
# and what synced Kafka reads back is laid out as in default Kafka, only written more slowly.
SKIPPED = {
    "kafka-synced": ("many_topics", "delayed", "singles"),
    "kafka-default": ("many_topics", "delayed"),
}


def raise_file_limit() -> None:
    """Two thousand connections need as many descriptors, here and in the servers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _produce_once(
    server: Server, wire: Wire, topic: str, size: int, partitions: int, scale: Scale
) -> Measure:
    create_topic(wire, topic, partitions)
    os.sync()  # what earlier runs left to be written isn't this run's
    with metered(server) as used:
        moved = load.produce(
            server,
            topic,
            size=size,
            partitions=partitions,
            max_bytes=scale.produce_bytes,
            max_seconds=scale.produce_s,
        )
    stored = sum(wire.end_offset(topic, partition) for partition in range(partitions))
    if stored < moved.records + partitions:
        raise load.LoadFailed(f"{topic}: {moved.records} records acknowledged, {stored} in the log")
    return _throughput([moved], used)


def _warm_up(server: Server, wire: Wire) -> None:
    # The JVM compiles what is hot only after a while; Dray fills its pools.
    create_topic(wire, "warm-up", 1)
    load.produce(server, "warm-up", max_bytes=WARM_UP_RECORDS * 1000, max_seconds=60.0)


@contextlib.contextmanager
def metered(server: Server) -> Iterator[Measure]:
    """The dict that is yielded has the server's CPU and peak memory when the block is left."""
    used: Measure = {}
    server.reset_peak()
    before = server.usage()
    yield used
    after = server.usage()
    used["cpu_s"] = after.cpu_s - before.cpu_s
    used["peak_rss_mb"] = after.peak_rss_bytes / 1e6


def _throughput(runs: Sequence[load.Moved], used: Measure) -> Measure:
    total_bytes = sum(each.bytes for each in runs)
    seconds = sum(each.seconds for each in runs)
    records = sum(each.records for each in runs)
    return {
        "mb_per_s": total_bytes / seconds / 1e6,
        "records_per_s": records / seconds,
        "records": records,
        "s_per_million": seconds / records * 1e6,
        "bytes": total_bytes,
        "cpu_s_per_gb": used["cpu_s"] / (total_bytes / 1e9),
        "client_cpu_s_per_gb": sum(each.client_cpu_s for each in runs) / (total_bytes / 1e9),
        "peak_rss_mb": used["peak_rss_mb"],
    }


def _median(runs: Sequence[Measure]) -> Measure:
    """The run with the median throughput, as it was; its figures belong together."""
    return sorted(runs, key=lambda run: run["mb_per_s"])[len(runs) // 2]


def create_topic(wire: Wire, topic: str, partitions: int) -> None:
    """A topic whose partitions all answer."""
    wire.create_topic(topic, partitions)
    _until_usable(wire, topic, partitions)


def _until_usable(wire: Wire, topic: str, partitions: int = 1) -> int:
    """Ask for the log's end until every partition gives it; returns how often it did not."""
    deadline = time.perf_counter() + USABLE_TIMEOUT_S
    failures = 0
    for partition in range(partitions):
        while True:
            try:
                wire.end_offset(topic, partition)
                break
            except WireError:
                if time.perf_counter() > deadline:
                    raise
                failures += 1
                threading.Event().wait(POLL_S)
    return failures


def _metadata_p50_ms(wire: Wire, topic: str, asks: int) -> float:
    times = []
    for _ in range(asks):
        began = time.perf_counter()
        wire.metadata([topic])
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def factory(kind: str, folder: Path) -> Factory:
    """Servers of a kind, each in a folder of its own."""

    def make(name: str, settings: Sequence[str] = ()) -> Server:
        return servers.make(kind, folder / name, settings)

    return make
