"""The records that every client writes and must get back, and the comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compat.clients.job import Record, pack

PARTITIONS = 2
RECORDS_PER_CASE = 60
LARGE_BYTES = (3_000_000, 1_200_000, 900_000, 10)
LARGEST_BYTES = 8_000_000
KEYS: tuple[bytes | None, ...] = (b"key", "Schlüssel".encode(), b"k" * 300)

Headers = list[list[str | None]]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a client can put into a record; see ``compat/clients/job.py``."""

    null_headers: bool = True
    repeated_headers: bool = True
    empty: bool = True
    bytes: bool = True


def mixed(start_ms: int, can: Abilities) -> list[Record]:
    """Records with everything that may go wrong in them, as far as the client can write it."""
    keys: list[bytes | None] = [None, *KEYS]
    values: list[bytes | None] = [b"value", None, "Größe".encode(), b"x" * 37]
    if can.empty:
        keys.append(b"")
        values.append(b"")
    if can.bytes:
        keys.append(b"\x00\xff\xfe")
        values += [bytes(range(256)), b"large" * 20_000]
    heads = [[], *_headers(can)]
    return [
        # Runs of the same headers: kcat takes them once for a whole call.
        _record(i, start_ms, keys[i % len(keys)], _grown(values, i), heads[i // 12 % len(heads)])
        for i in range(RECORDS_PER_CASE)
    ]


def headers(start_ms: int, can: Abilities) -> list[Record]:
    """Records whose headers differ; all else is plain."""
    heads = _headers(can)
    return [
        _record(i, start_ms, b"key", f"value {i}".encode(), heads[i // 4 % len(heads)])
        for i in range(4 * len(heads))
    ]


def nulls(start_ms: int, can: Abilities) -> list[Record]:
    """Null keys, null values, and empty ones, which are not the same."""
    shapes: list[tuple[bytes | None, bytes | None]] = [(None, b"value"), (b"key", None)]
    if can.empty:
        shapes += [(b"", b"value"), (b"key", b"")]
    return [_record(i, start_ms, *shapes[i % len(shapes)], []) for i in range(16)]


def large(start_ms: int, _can: Abilities) -> list[Record]:
    """Records that need a raised ``max.message.bytes``."""
    return [
        _record(i, start_ms, b"key", (b"%07d " % i * (size // 8 + 1))[:size], [])
        for i, size in enumerate(LARGE_BYTES)
    ]


def plain(start_ms: int, count: int) -> list[Record]:
    """Short text, for topics where something else is looked at."""
    return [_record(i, start_ms, b"key", f"value {i}".encode(), []) for i in range(count)]


def _headers(can: Abilities) -> list[Headers]:
    found: list[Headers] = [
        [["trace", pack(b"id-1")]],
        [["a", pack(b"1")], ["b", pack(b"two")]],
    ]
    if can.repeated_headers:
        found[-1].append(["a", pack(b"3")])
    if can.bytes:
        found += [[["binary", pack(b"\x80\xfe\xff")]]]
    if can.empty:
        found += [[["empty", pack(b"")]]]
    if can.null_headers and can.bytes:
        found[-1].append(["none", None])
    return found


def _grown(values: Sequence[bytes | None], i: int) -> bytes | None:
    value = values[i % len(values)]
    # No two records alike, so that a mix-up shows.
    return f"{i} ".encode() + value if value and len(value) < 100 else value


def _record(i: int, start_ms: int, key: bytes | None, value: bytes | None, head: Headers) -> Record:
    # The Python clients refuse a record that has neither key nor value.
    key = f"tombstone-{i}".encode() if key is None and value is None else key
    return {
        "partition": i // 2 % PARTITIONS if i % 7 else 0,
        "offset": -1,
        "key": pack(key),
        "value": pack(value),
        "headers": head,
        "timestamp": start_ms + i * 17,
    }


def counts(records: Sequence[Record]) -> list[int]:
    """How many records each partition gets."""
    return [sum(r["partition"] == partition for r in records) for partition in range(PARTITIONS)]


def expected_offsets(records: Sequence[Record]) -> list[int]:
    """The offset of each record, in the order of sending, on a topic that was empty."""
    next_offset = [0] * PARTITIONS
    offsets = []
    for record in records:
        offsets.append(next_offset[record["partition"]])
        next_offset[record["partition"]] += 1
    return offsets


def compare(
    sent: Sequence[Record],
    received: Sequence[dict[str, Any]],
    *,
    starts: Sequence[int],
    timestamps: bool,
) -> str | None:
    """What is wrong with what was received, in one sentence; None if nothing is.

    ``starts``: the offset that reading began at in each partition; nothing below may come.
    ``timestamps``: whether the writer could set them; if not, they only have to be there.
    """
    wanted = {
        (record["partition"], offset): record
        for record, offset in zip(sent, expected_offsets(sent), strict=True)
        if offset >= starts[record["partition"]]
    }
    next_offset = list(starts)
    for got in received:
        partition, offset = got["partition"], got["offset"]
        place = f"partition {partition} offset {offset}"
        if (partition, offset) not in wanted:
            return f"a record that nobody sent, at {place}"
        if offset != next_offset[partition]:
            return f"{place} came where {next_offset[partition]} is next"
        next_offset[partition] += 1
        record = wanted[partition, offset]
        for field in ("key", "value", "headers"):
            expected = record[field]
            if got[field] != expected:
                return f"{field} at {place} is {_short(got[field])}, not {_short(expected)}"
        if timestamps and got["timestamp"] != record["timestamp"]:
            return f"timestamp at {place} is {got['timestamp']}, not {record['timestamp']}"
        if got["timestamp"] <= 0:
            return f"timestamp at {place} is {got['timestamp']}"
    if len(received) != len(wanted):
        return f"{len(wanted) - len(received)} of {len(wanted)} records are missing"
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
