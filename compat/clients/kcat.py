"""kcat, driven through its command line: ``python -m compat.clients.kcat``.

kcat takes headers once for a whole call, so records go in runs that share partition and headers;
it can set no timestamps, and what is empty it sends as null. Text records only: a unit separator
stands between key and value, a record separator after each record.
"""

import json
import re
import subprocess
import time
from collections import Counter
from itertools import groupby
from typing import Any

from compat import toolchain
from compat.clients.job import CASE_TIMEOUT_S, Case, Record, TimedOut, pack, serve, unpack

KEY_END, RECORD_END = b"\x1f", b"\x1e"
EARLIEST, LATEST = -2, -1
# Lengths first, so that keys and values may hold any byte; %h ends at the record separator.
FORMAT = "%p %o %T %K %S %h\x1e%k%s"


NO_ADMIN = "kcat has no admin commands"


def about(_bootstrap: str, _case: Case) -> dict[str, Any]:
    text = subprocess.run(
        [toolchain.kcat(), "-V"], capture_output=True, text=True, check=True
    ).stdout
    version = re.search(r"Version (\S+) \(.*librdkafka (\S+?),? ", text)
    admin = ("create", "describe configs", "alter configs", "create partitions")
    return {
        "version": f"{version[1]} (librdkafka {version[2]})" if version else "unknown",
        "compressions": ["none", "gzip", "snappy", "lz4", "zstd"],
        "cannot": dict.fromkeys((*admin, "delete records", "delete topic"), NO_ADMIN),
        "timestamps": False,
        "empty": False,
        "bytes": False,
    }


def describe(bootstrap: str, case: Case) -> dict[str, Any] | None:
    for topic in _listing(bootstrap)["topics"]:
        if topic["topic"] == case["topic"]:
            return {"partitions": len(topic["partitions"])}
    return None


def cluster(bootstrap: str, _case: Case) -> dict[str, Any]:
    names = [broker["name"] for broker in _listing(bootstrap)["brokers"]]
    return {"ports": sorted(int(name.rpartition(":")[2]) for name in names)}


def _listing(bootstrap: str) -> dict[str, Any]:
    # Everything: a topic that is asked for by its name could be created by that.
    data, _ = _kcat(["-L", "-J", "-b", bootstrap])
    listing: dict[str, Any] = json.loads(data)
    return listing


def produce(bootstrap: str, case: Case) -> list[int | None]:
    offsets: list[int | None] = [None] * len(case["records"])
    stored: Counter[int] = Counter()
    # A stable sort: within a partition the order of sending stays.
    order = sorted(enumerate(case["records"]), key=lambda each: int(each[1]["partition"]))
    for _, run in groupby(order, key=lambda each: (each[1]["partition"], each[1]["headers"])):
        batch = list(run)
        found = _produce_run(bootstrap, case, [record for _, record in batch])
        if case["acks"] == "0":
            # The next kcat has a connection of its own, which could overtake this one's.
            partition = batch[0][1]["partition"]
            stored[partition] += len(batch)
            _until_end(bootstrap, case["topic"], partition, stored[partition])
            continue
        if len(found) != len(batch):
            raise TimedOut(f"{len(found)} of {len(batch)} records delivered")
        for (index, _), offset in zip(batch, found, strict=True):
            offsets[index] = offset
    return offsets


def _until_end(bootstrap: str, topic: str, partition: int, end_offset: int) -> None:
    deadline = time.monotonic() + CASE_TIMEOUT_S
    while (found := _listed(bootstrap, topic, partition, LATEST)) < end_offset:
        if time.monotonic() > deadline:
            raise TimedOut(f"of {end_offset} records sent with acks=0, {found} arrived")


def _produce_run(bootstrap: str, case: Case, records: list[Record]) -> list[int]:
    headers = []
    for name, value in records[0]["headers"]:
        headers += ["-H", f"{name}={(unpack(value) or b'').decode()}"]
    lines = b""
    for record in records:
        key = unpack(record["key"])
        lines += (b"" if key is None else key + KEY_END) + (unpack(record["value"]) or b"")
        lines += RECORD_END
    _, said = _kcat(
        [
            *("-P", "-b", bootstrap, "-t", case["topic"], "-p", str(records[0]["partition"])),
            *("-K", KEY_END.decode(), "-D", RECORD_END.decode(), "-z", case["compression"]),
            *("-X", f"acks={case['acks']}", "-X", "topic.produce.offset.report=true"),
            *("-X", f"enable.idempotence={str(case['idempotent']).lower()}", "-vvv"),
            *("-X", f"message.max.bytes={case['max_bytes']}", "-Z"),
            *headers,
        ],
        lines,
    )
    return [
        int(offset) for offset in re.findall(r"delivered to partition \d+ \(offset (\d+)\)", said)
    ]


def consume(bootstrap: str, case: Case) -> list[Record]:
    records = []
    for partition, (start, count) in enumerate(zip(case["starts"], case["counts"], strict=True)):
        if not count:
            continue
        data, _ = _kcat(
            [
                *("-C", "-q", "-b", bootstrap, "-t", case["topic"], "-p", str(partition)),
                *("-o", str(start), "-c", str(count), "-f", FORMAT, "-X", "check.crcs=true"),
            ]
        )
        records += _parse(data)
    return records


def offsets(bootstrap: str, case: Case) -> dict[str, int]:
    topic, partition = case["topic"], case["partition"]
    return {
        "earliest": _listed(bootstrap, topic, partition, EARLIEST),
        "latest": _listed(bootstrap, topic, partition, LATEST),
        "at": _listed(bootstrap, topic, partition, case["timestamp"]),
    }


def _listed(bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
    data, _ = _kcat(["-Q", "-b", bootstrap, "-t", f"{topic}:{partition}:{timestamp}"])
    found = re.search(rb"offset (-?\d+)", data)
    if found is None:
        raise TimedOut(f"no offset in {data!r}")
    return int(found[1])


def _parse(data: bytes) -> list[Record]:
    records: list[Record] = []
    at = 0
    while at < len(data):
        end = data.index(RECORD_END, at)
        partition, offset, timestamp, key_size, value_size, headers = data[at:end].split(b" ", 5)
        at = end + 1
        key, at = _take(data, at, int(key_size))
        value, at = _take(data, at, int(value_size))
        records.append(
            {
                "partition": int(partition),
                "offset": int(offset),
                "key": pack(key),
                "value": pack(value),
                "headers": [_header(pair) for pair in headers.split(b",") if pair],
                "timestamp": int(timestamp),
            }
        )
    return records


def _take(data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _header(pair: bytes) -> list[str | None]:
    name, _, value = pair.partition(b"=")
    return [name.decode(), None if value == b"NULL" else pack(value)]


def _kcat(arguments: list[str], data: bytes = b"") -> tuple[bytes, str]:
    done = subprocess.run(
        [toolchain.kcat(), *arguments],
        input=data,
        capture_output=True,
        timeout=CASE_TIMEOUT_S,
        check=False,
    )
    said = done.stderr.decode(errors="replace")
    if done.returncode:
        raise TimedOut(f"kcat ended with {done.returncode}: {said.strip()[-300:]}")
    return done.stdout, said


if __name__ == "__main__":
    serve(
        {
            "about": about,
            "describe": describe,
            "cluster": cluster,
            "produce": produce,
            "consume": consume,
            "offsets": offsets,
        }
    )
