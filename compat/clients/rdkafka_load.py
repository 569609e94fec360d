"""A producer that costs as little as librdkafka itself: ``python -m compat.clients.rdkafka_load``.

A Python client spends about a microsecond on each record, which at 100 bytes is less than a
server can take, so the figure would be the client's. Here the records are laid out once in
memory and handed to ``rd_kafka_produce_batch`` a megabyte at a time, through ctypes and the
librdkafka that confluent-kafka brings along; per record only librdkafka's own code runs.

Prints one JSON line: records, bytes, seconds (until the last acknowledgement), client CPU.
"""

import argparse
import ctypes
import json
import os
import random
import sys
import time
from pathlib import Path

from confluent_kafka import cimpl

FLUSH_TIMEOUT_MS = 120_000
CHUNK_BYTES = 1_000_000
ERROR_BYTES = 512
POLL_MS = 2

# What makes batches as large as brokers take by default, and keeps the queue full.
DEFAULTS = {
    "acks": "all",
    "linger.ms": "5",
    "batch.size": "1000000",
    "batch.num.messages": "1000000",
    "queue.buffering.max.messages": "2000000",
    "queue.buffering.max.kbytes": "262144",
    "message.timeout.ms": "120000",
    # A broker that is gone is reported once, at the end.
    "log_level": "2",
}


class Message(ctypes.Structure):
    """``rd_kafka_message_t``."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def load_librdkafka() -> ctypes.CDLL:
    """The library that ``cimpl`` has already loaded, with the prototypes of what is used."""
    number, pointer, text = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
    assert cimpl.libversion()
    maps = Path("/proc/self/maps").read_text().split()
    path = next((word for word in maps if "librdkafka" in word), None)
    lib = ctypes.CDLL(path)
    prototypes = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_produce_batch": (number, [pointer, ctypes.c_int32, number, pointer, number]),
        "rd_kafka_poll": (number, [pointer, number]),
        "rd_kafka_flush": (number, [pointer, number]),
        "rd_kafka_outq_len": (number, [pointer]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Load:
    """A librdkafka producer and a block of records that it sends again and again."""

    def __init__(self, settings: dict[str, str], topic: str, size: int, records: int) -> None:
        self._lib = load_librdkafka()
        error = ctypes.create_string_buffer(ERROR_BYTES)
        conf = self._lib.rd_kafka_conf_new()
        for key, value in settings.items():
            if self._lib.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, ERROR_BYTES):
                raise SystemExit(error.value.decode())
        self._handle = self._lib.rd_kafka_new(0, conf, error, ERROR_BYTES)
        if not self._handle:
            raise SystemExit(error.value.decode())
        self._topic = self._lib.rd_kafka_topic_new(self._handle, topic.encode(), None)
        # Not compressible, and the same in every run.
        self._data = ctypes.create_string_buffer(random.Random(1).randbytes(records * size))
        self._messages = (Message * records)()
        for i, message in enumerate(self._messages):
            message.payload = ctypes.addressof(self._data) + i * size
            message.len = size

    def send(self, partition: int, records: int) -> None:
        """Queue the first records of the block, waiting while the queue is full."""
        done = 0
        while done < records:
            at = ctypes.byref(self._messages, done * ctypes.sizeof(Message))
            # From the first record that doesn't fit into the queue on, none is taken.
            done += self._lib.rd_kafka_produce_batch(self._topic, partition, 0, at, records - done)
            if done < records:
                self._lib.rd_kafka_poll(self._handle, POLL_MS)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        if self._lib.rd_kafka_flush(self._handle, FLUSH_TIMEOUT_MS):
            left = self._lib.rd_kafka_outq_len(self._handle)
            raise SystemExit(f"{left} records were not acknowledged within {FLUSH_TIMEOUT_MS} ms")


def main() -> None:
    """Send until the bytes or the seconds are used up, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a record's value")
    parser.add_argument("--bytes", type=float, default=1e9, help="stop after this many")
    parser.add_argument("--seconds", type=float, default=10.0, help="or after this long")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()

    settings = {"bootstrap.servers": options.bootstrap} | DEFAULTS
    settings |= dict(each.split("=", 1) for each in options.set)
    block = max(1, min(CHUNK_BYTES, int(options.bytes)) // options.size)
    load = Load(settings, options.topic, options.size, block)
    for partition in range(options.partitions):
        load.send(partition, 1)  # connections and leaders are known before the clock starts
    load.flush()

    wanted = max(1, int(options.bytes) // options.size)
    sent = partition = 0
    cpu_before = time.process_time()
    began = time.perf_counter()
    while sent < wanted and time.perf_counter() - began < options.seconds:
        records = min(block, wanted - sent)
        load.send(partition, records)
        sent += records
        partition = (partition + 1) % options.partitions
    load.flush()
    seconds = time.perf_counter() - began
    report = {
        "records": sent,
        "bytes": sent * options.size,
        "seconds": seconds,
        "client_cpu_s": time.process_time() - cpu_before,
        "warm_up_records": options.partitions,
    }
    print(json.dumps(report), flush=True)
    # Everything is acknowledged: nothing that librdkafka tears down matters.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
