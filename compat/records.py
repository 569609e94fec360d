"""The records that every client writes and must get back, and the comparison."""

from collections.abc import Sequence
from typing import Any

from compat.clients.job import Record, pack

PARTITIONS = 2
RECORDS_PER_CASE = 60


def make(count: int, start_ms: int, *, plain: bool, null_headers: bool) -> list[Record]:
    """Records with everything that may go wrong in them.

    ``plain`` is for clients that take records as lines of text: no absent or empty values, no
    bytes that aren't text. ``null_headers``: whether the client can send a header without a value.
    """
    return [_record(i, start_ms, plain=plain, null_headers=null_headers) for i in range(count)]


def _record(i: int, start_ms: int, *, plain: bool, null_headers: bool) -> Record:
    keys: list[bytes | None] = [None, f"key-{i}".encode(), "Schlüssel".encode()]
    values: list[bytes | None] = [f"value {i}".encode(), b"x" * (i * 37 + 1)]
    headers: list[list[list[str | None]]] = [
        [],
        [["trace", pack(f"id-{i}".encode())]],
        [["a", pack(b"1")], ["b", pack(b"two")], ["a", pack(b"3")]],
    ]
    if not plain:
        keys += [b"", b"\x00\xff\xfe"]
        values += [None, b"", bytes(range(256)), b"large" * 20_000]
        headers += [[["empty", pack(b"")]], [["binary", pack(b"\x80\xfe\xff")]]]
        if null_headers:
            headers[-1].append(["none", None])
    value = values[i % len(values)]
    # The Python clients refuse a record that has neither key nor value.
    key = keys[i % len(keys)] if value is not None else f"tombstone-{i}".encode()
    return {
        "partition": i // 2 % PARTITIONS if i % 7 else 0,
        "offset": -1,
        "key": pack(key),
        "value": pack(value),
        # Runs of the same headers: kcat takes them once for a whole call.
        "headers": headers[i // 12 % len(headers)],
        "timestamp": start_ms + i * 17,
    }


def ends(records: Sequence[Record]) -> list[int]:
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
    sent: Sequence[Record], received: Sequence[dict[str, Any]], *, timestamps: bool
) -> str | None:
    """What is wrong with what was received, in one sentence; None if nothing is.

    ``timestamps``: whether the writer could set them; if not, they only have to be there.
    """
    wanted = {
        (record["partition"], offset): record
        for record, offset in zip(sent, expected_offsets(sent), strict=True)
    }
    seen: set[tuple[int, int]] = set()
    last = [-1] * PARTITIONS
    for got in received:
        partition, offset = got["partition"], got["offset"]
        place = f"partition {partition} offset {offset}"
        if (partition, offset) not in wanted:
            return f"a record that nobody sent, at {place}"
        if offset <= last[partition]:
            return f"{place} came after offset {last[partition]}"
        last[partition] = offset
        seen.add((partition, offset))
        record = wanted[partition, offset]
        for field in ("key", "value", "headers"):
            expected = record[field]
            if got[field] != expected:
                return f"{field} at {place} is {_short(got[field])}, not {_short(expected)}"
        if timestamps and got["timestamp"] != record["timestamp"]:
            return f"timestamp at {place} is {got['timestamp']}, not {record['timestamp']}"
        if got["timestamp"] <= 0:
            return f"timestamp at {place} is {got['timestamp']}"
    if len(seen) != len(wanted):
        return f"{len(wanted) - len(seen)} of {len(wanted)} records are missing"
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
