"""Batches that must be refused, and the code for each.

The codes were compared with Apache Kafka 4.3.1 by sending it these very batches; where ours is
another on purpose, the row says so. They are checked with a current time of `NOW_MS`, timestamps
from a day before to an hour after it, and at most 100,000 bytes a batch.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from protocol.errors import ErrorCode
from tests.protocol.building import HOUR_MS, NOW_MS, batch, compressed, record, records, varint

INVALID = ErrorCode.invalid_record
CORRUPT = ErrorCode.corrupt_message
TOO_LARGE = ErrorCode.message_too_large
TIMESTAMP = ErrorCode.invalid_timestamp
TWO = records(2)


class Refused(NamedTuple):
    what: str
    data: bytes | None
    code: ErrorCode


REFUSED: tuple[Refused, ...] = (
    Refused("null (Kafka never answers)", None, INVALID),
    Refused("empty", b"", INVALID),
    Refused("no room for a length", batch()[:11], INVALID),
    Refused("cut in the header", batch()[:40], INVALID),
    Refused("cut at the end", batch()[:-1], INVALID),
    Refused("length beyond the data", batch(length=5000), INVALID),
    Refused("length below any format's", batch(length=13), CORRUPT),
    Refused("negative length", batch(length=-5), CORRUPT),
    Refused("length below the header's, rest is no batch", batch(length=20), CORRUPT),
    Refused(
        "length below the header's", batch()[:8] + struct.pack(">i", 40) + batch()[12:52], CORRUPT
    ),
    Refused("two batches", batch() + batch(), INVALID),
    Refused("zeros after the batch", batch() + bytes(30), CORRUPT),
    Refused("unknown format after the batch", batch() + batch(magic=3), CORRUPT),
    Refused("format 0", batch(magic=0), INVALID),
    Refused("format 1", batch(magic=1), INVALID),
    Refused("format 3", batch(magic=3), CORRUPT),
    Refused("format -1", batch(magic=-1), CORRUPT),
    Refused("wrong CRC", batch(crc=5), CORRUPT),
    Refused("base offset", batch(base_offset=7), INVALID),
    Refused("too large", batch([record(value=bytes(100_000))]), TOO_LARGE),
    Refused("too large and wrong CRC", batch([record(value=bytes(100_000))], crc=1), TOO_LARGE),
    Refused("no records", batch([]), INVALID),
    Refused("count 0", batch([], last_offset_delta=0), INVALID),
    Refused("negative count", batch(count=-1, last_offset_delta=-2), INVALID),
    Refused("negative last offset delta", batch(last_offset_delta=-1), INVALID),
    Refused("count and last offset delta differ", batch(TWO, last_offset_delta=2), INVALID),
    Refused("fewer records than counted", batch(count=2, last_offset_delta=1), INVALID),
    Refused("more records than counted", batch(TWO, count=1, last_offset_delta=0), INVALID),
    Refused(
        "more records counted than fit",
        batch(count=2**31 - 1, last_offset_delta=2**31 - 2),
        INVALID,
    ),
    Refused("control", batch(attributes=0x20), INVALID),
    Refused(
        "transactional",
        batch(attributes=0x10),
        ErrorCode.transactional_id_authorization_failed,
    ),
    Refused("producer without sequence", batch(producer_id=5, producer_epoch=0), INVALID),
    Refused(
        "producer without epoch (Kafka: accepted)", batch(producer_id=5, base_sequence=0), INVALID
    ),
    Refused(
        "unknown codec",
        batch(attributes=5),
        ErrorCode.unknown_server_error,
    ),
    Refused("timestamp too late", batch(base_timestamp=NOW_MS + HOUR_MS + 1), TIMESTAMP),
    Refused("timestamp too early", batch(base_timestamp=NOW_MS - 24 * HOUR_MS - 1), TIMESTAMP),
    Refused("negative timestamp", batch(base_timestamp=-5), TIMESTAMP),
    Refused(
        "one timestamp too late",
        batch([record(0), record(1, timestamp_delta=2 * HOUR_MS)]),
        TIMESTAMP,
    ),
    Refused("offset deltas with a hole (Kafka: accepted)", batch([record(0), record(5)]), INVALID),
    Refused("offset deltas out of order (Kafka: accepted)", batch([record(1), record(0)]), INVALID),
    Refused("record shorter than its fields", batch([record(length=5)]), INVALID),
    Refused("record longer than the batch", batch([record(length=50)]), INVALID),
    Refused("record of negative length", batch([record(length=-1)]), INVALID),
    Refused("record of no length", batch([record(length=0)]), INVALID),
    Refused("bytes after the last record", batch(body=record() + b"\0"), INVALID),
    Refused("header without a key", batch(body=b"\x14\0\0\0\x01\x01\x02\x01\x00\0\0"), INVALID),
    Refused("negative number of headers", batch(body=b"\x0c\0\0\0\x01\x01\x01"), INVALID),
    Refused("more headers than fit", batch(body=b"\x0e\0\0\0\x01\x01\x7e\0"), INVALID),
    Refused("key length beyond the batch", batch(body=b"\x0c\0\0\0\x7e\x01\0"), INVALID),
    Refused(
        "key length near 2^63",
        batch(body=varint(15) + b"\0\0\0" + varint(2**63 - 1) + b"\x01\0"),
        INVALID,
    ),
    Refused(
        "key length just below 2^63",
        batch(body=varint(15) + b"\0\0\0" + varint(2**63 - 70) + b"\x01\0"),
        INVALID,
    ),
    Refused("endless varint", batch(body=b"\x80" * 40), INVALID),
    Refused("varint cut off", batch(body=record()[:-1] + b"\x80"), INVALID),
    Refused("header count cut off", batch(body=b"\x0c\0\0\0\x01\x01\xff"), INVALID),
)

REFUSED_COMPRESSED: tuple[tuple[str, Callable[[int], bytes]], ...] = (
    (
        "garbage",
        lambda codec: batch(TWO, codec=codec, body=b"no codec wrote these bytes"),
    ),
    (
        "cut",
        lambda codec: batch(TWO, codec=codec, body=compressed(codec, b"".join(TWO))[:-4]),
    ),
    ("nothing", lambda codec: batch(TWO, codec=codec, body=b"")),
    (
        "offset deltas with a hole (Kafka: UNKNOWN_SERVER_ERROR)",
        lambda codec: batch([record(0), record(5)], codec=codec),
    ),
    (
        "fewer records than counted",
        lambda codec: batch(TWO, codec=codec, count=3, last_offset_delta=2),
    ),
    (
        "more records than counted",
        lambda codec: batch(TWO, codec=codec, count=1, last_offset_delta=0),
    ),
    (
        "record longer than the batch (Kafka: accepted)",
        lambda codec: batch([record(length=50)], codec=codec),
    ),
    (
        "bytes after the last record",
        lambda codec: batch(codec=codec, body=compressed(codec, record() + b"\0")),
    ),
)
