"""Writes the golden WAL objects: `python -m tests.golden.make_wal` from the project's root.

They are checked in, and `tests/wal/test_golden.py` compares today's encoder with them byte for
byte. A difference means that objects already in somebody's store would be read or written
differently: that needs a new format version, not new golden files. So this script is for adding
files, not for making a failing test pass.

The bytes are built here with `struct` and a bitwise CRC, from the tables of the specification
(§5.2.2), and not with our encoder: the two are independent of one another.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

FOLDER = Path(__file__).parent


class Stream(NamedTuple):
    stream_id: int
    batches: list[bytes]
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int


class Golden(NamedTuple):
    wal_id: UUID
    meta_domain: int
    created_at_ms: int
    streams: list[Stream]


def crc32c_bitwise(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def varint(number: int) -> bytes:
    """Kafka's zigzag variable-length integer."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record_batch(
    base_timestamp_ms: int,
    values: list[bytes],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """An uncompressed batch of format 2; its records are a millisecond apart, without keys."""
    records = b""
    for i, value in enumerate(values):
        body = b"\0" + varint(i) + varint(i) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    last = len(values) - 1
    checked = struct.pack(
        ">hiqqqhii",
        0,
        last,
        base_timestamp_ms,
        base_timestamp_ms + last,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    )
    checked += records
    head = struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c_bitwise(checked))
    return head + checked


def layout(golden: Golden) -> bytes:
    """The object's bytes, straight from the tables of the specification."""
    position = 49 + 44 * len(golden.streams)
    index = bodies = b""
    for stream in sorted(golden.streams):
        body = b"".join(struct.pack(">I", len(batch)) + batch for batch in stream.batches)
        index += struct.pack(
            ">QQIIIqq",
            stream.stream_id,
            position,
            len(body),
            stream.record_count,
            len(stream.batches),
            stream.min_timestamp_ms,
            stream.max_timestamp_ms,
        )
        bodies += body
        position += len(body)
    header = b"DRAYWO1" + struct.pack(
        ">H16sIqIQ",
        1,
        golden.wal_id.bytes,
        golden.meta_domain,
        golden.created_at_ms,
        len(golden.streams),
        49,
    )
    content = header + index + bodies
    return content + struct.pack(">I", crc32c_bitwise(content))


_T = 1_735_786_245_678  # 2025-01-02T02:50:45.678Z

GOLDEN: dict[str, Golden] = {
    "wal-empty.wo": Golden(UUID("00000000-0000-4000-8000-000000000001"), 0, _T, []),
    "wal-one-stream.wo": Golden(
        UUID("00000000-0000-4000-8000-000000000002"),
        7,
        _T,
        [Stream(1, [record_batch(_T - 5, [b"hello", b"world"])], 2, _T - 5, _T - 4)],
    ),
    "wal-many-streams.wo": Golden(
        UUID("0193fffe-dcba-7000-8123-456789abcdef"),
        4_294_967_295,
        _T,
        [
            # Given out of order: an object is sorted by stream id.
            Stream(
                18_446_744_073_709_551_615,
                [
                    record_batch(
                        _T, [b"x"], producer_id=4711, producer_epoch=3, base_sequence=2_147_483_647
                    )
                ],
                1,
                _T,
                _T,
            ),
            Stream(
                3,
                [record_batch(_T + 10 * i, [b"%d" % i] * (i + 1)) for i in range(3)],
                6,
                _T,
                _T + 22,
            ),
            # One batch large enough to be passed on without a copy, between two small ones.
            Stream(
                256,
                [
                    record_batch(_T, [b"small"]),
                    record_batch(_T + 1, [bytes(range(256)) * 40]),
                    record_batch(_T + 2, [b"small again"]),
                ],
                3,
                _T,
                _T + 2,
            ),
            Stream(4, [record_batch(-1, [b"without a time"])], 1, -1, -1),
        ],
    ),
}


def main() -> None:
    for name, golden in GOLDEN.items():
        (FOLDER / name).write_bytes(layout(golden))


if __name__ == "__main__":
    main()
