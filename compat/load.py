"""Run the bench's clients as processes and read their figures.

Producing is librdkafka (``compat.clients.rdkafka_load``), consuming is kcat, which is librdkafka
too; latencies come from Kafka's own EndToEndLatency and ProducerPerformance. None of them joins
a consumer group.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from compat import toolchain
from compat.servers import Server

CLIENT_TIMEOUT_S = 400.0

CONSUMER_SETTINGS = ("queued.min.messages=1000000", "fetch.message.max.bytes=1048576")


class LoadFailed(Exception):
    """A client did not end well; the message is what it said."""


class Moved(NamedTuple):
    """What a client sent or received."""

    records: int
    bytes: int
    seconds: float
    client_cpu_s: float


class Latency(NamedTuple):
    """Percentiles in milliseconds, as the tool prints them (whole ones)."""

    p50_ms: float
    p99_ms: float
    average_ms: float
    records_per_s: float


def produce(
    server: Server,
    topic: str,
    *,
    size: int = 1000,
    partitions: int = 1,
    max_bytes: float,
    max_seconds: float = 10.0,
    settings: Sequence[str] = (),
) -> Moved:
    """librdkafka, acks=all, every record acknowledged when it returns; the topic must exist."""
    output = run(
        [
            *(sys.executable, "-m", "compat.clients.rdkafka_load"),
            *("--bootstrap", server.bootstrap, "--topic", topic, "--size", str(size)),
            *("--partitions", str(partitions)),
            *("--bytes", str(max_bytes), "--seconds", str(max_seconds)),
            *(argument for setting in settings for argument in ("--set", setting)),
        ]
    )
    report = json.loads(output)
    return Moved(report["records"], report["bytes"], report["seconds"], report["client_cpu_s"])


def produce_idempotent(server: Server, topic: str, *, max_bytes: float, size: int = 1000) -> Moved:
    """Kafka's ProducerPerformance: idempotent, five requests in flight, large batches.

    Not librdkafka: its idempotent producer (2.16) waits for each answer before it sends the
    next request for the same partition, and spins meanwhile.
    """
    output = run(
        toolchain.java(
            toolchain.TOOLS + "ProducerPerformance",
            *("--bootstrap-server", server.bootstrap, "--topic", topic),
            *("--num-records", str(int(max_bytes) // size), "--record-size", str(size)),
            *("--warmup-records", str(int(max_bytes) // size // 3)),
            *("--throughput", "-1", "--command-property", "acks=all", "linger.ms=5"),
            *("batch.size=1000000", "buffer.memory=200000000", "max.request.size=4000000"),
        )
    )
    found = _steady_state(output)
    records, records_per_s = int(found[1]), float(found[2])
    return Moved(records, records * size, records / records_per_s, 0.0)


def consume(server: Server, topic: str, *, records: int, size: int = 1000) -> Moved:
    """kcat from partition 0's start, until it has the records; its start is in the time."""
    settings = [argument for setting in CONSUMER_SETTINGS for argument in ("-X", setting)]
    began = time.perf_counter()
    # An empty format: the records are parsed by librdkafka, handed over and not printed.
    run(
        [
            *(toolchain.kcat(), "-C", "-q", "-b", server.bootstrap, "-t", topic, "-p", "0"),
            *("-o", "beginning", "-c", str(records), "-f", ""),
            *settings,
        ]
    )
    return Moved(records, records * size, time.perf_counter() - began, 0.0)


def end_to_end(server: Server, topic: str, *, records: int, size: int = 1000) -> Latency:
    """Kafka's EndToEndLatency: one record at a time from producer to consumer, acks=all."""
    output = run(
        toolchain.java(
            toolchain.TOOLS + "EndToEndLatency",
            *("--bootstrap-server", server.bootstrap, "--topic", topic),
            *("--num-records", str(records), "--record-size", str(size), "--producer-acks", "all"),
        ),
    )
    percentiles = _find(r"50th = (\d+), 99th = (\d+)", output)
    average = _find(r"Avg latency: ([\d.]+) ms", output)
    return Latency(
        float(percentiles[1]), float(percentiles[2]), float(average[1]), 1e3 / float(average[1])
    )


def ack_latency(
    server: Server,
    topic: str,
    *,
    records_per_s: int = 10_000,
    seconds: float,
    warm_up_s: float,
    size: int = 1000,
) -> Latency:
    """Kafka's ProducerPerformance at a fixed rate; the client's warm-up isn't counted."""
    output = run(
        toolchain.java(
            toolchain.TOOLS + "ProducerPerformance",
            *("--bootstrap-server", server.bootstrap, "--topic", topic),
            *("--num-records", str(int(records_per_s * (seconds + warm_up_s)))),
            *("--warmup-records", str(int(records_per_s * warm_up_s))),
            *("--record-size", str(size), "--throughput", str(records_per_s)),
            # Kafka 4's producer lingers for 5 ms unless told not to: that would be the result.
            *("--command-property", "acks=all", "linger.ms=0"),
        )
    )
    found = _steady_state(output)
    # A server that can't keep up shows first in the rate, then in seconds of latency.
    return Latency(float(found[4]), float(found[5]), float(found[3]), float(found[2]))


def run(command: Sequence[str]) -> str:
    """A client's standard output; LoadFailed if it hangs or fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            check=False,
            cwd=toolchain.ROOT,
        )
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"no end within {CLIENT_TIMEOUT_S:.0f} s: {' '.join(command)}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise LoadFailed(f"{' '.join(command[:3])} … ended with {done.returncode}: {said}")
    return done.stdout


def _steady_state(output: str) -> re.Match[str]:
    """ProducerPerformance after its warm-up: records, rate, average, p50, p99."""
    return _find(
        r"(\d+) steady state records sent, ([\d.]+) records/sec.*?"
        r"([\d.]+) ms avg latency.*?(\d+) ms 50th.*?(\d+) ms 99th",
        output,
    )


def _find(pattern: str, text: str) -> re.Match[str]:
    found = re.search(pattern, text)
    if found is None:
        raise LoadFailed(f"the client printed something else than expected:\n{text[-2000:]}")
    return found
