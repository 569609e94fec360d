"""The records inside a batch: the one place that looks into them.

The walk uses aiokafka's compiled codec, a private module that is pinned exactly. It must be
given nothing but the body of a batch whose CRC and header were checked, and it needs guarding:

- it checks one byte before reading a varint of up to ten, and reads a header's varints without
  any check, so it may read some 20 bytes past the end: every batch is walked in a copy with
  `PADDING` behind it (a copy costs a tenth of the walk);
- it would decompress without a bound: it is only ever shown uncompressed batches;
- a length near 2^63 makes it raise MemoryError or OverflowError, a header key that is not UTF-8
  UnicodeDecodeError, though Kafka accepts such a key.

So whatever it refuses is walked again by `_walk_exactly`, slowly and strictly as Kafka's own
code, which decides. What the compiled codec alone lets pass is over-long varints: it reads an
attribute byte as a varint, and takes ten bytes where Java takes five.
"""

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from aiokafka.errors import CorruptRecordException
from aiokafka.record._crecords.default_records import DefaultRecordBatch
from numpy.typing import NDArray

from protocol.uniform import MIN_RECORDS, walk_uniform

HEADER_SIZE = 61
PADDING = bytes(32)
# Length, attributes, timestamp and offset deltas, key and value length, header count.
MIN_RECORD_SIZE = 7
NO_TIMESTAMP = -1

_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_COUNT = Struct(">i")
_COUNT_AT = 57
_BASE_TIMESTAMP = Struct(">q")
_BASE_TIMESTAMP_AT = 27
_MAX_TIMESTAMP_AT = 35
_LOG_APPEND_TIME = 0x08
_INT64_SPAN = 2**64


class BadRecords(Exception):
    """The records of a batch are not well-formed."""


class RecordTime(NamedTuple):
    """Where a record is in its batch, and its timestamp (NO_TIMESTAMP if it has none)."""

    offset_delta: int
    timestamp_ms: int


class Walk(NamedTuple):
    """What a walk over all records of a batch found."""

    times: list[int] | NDArray[np.int64]
    earliest_ms: int
    latest_ms: int
    # Indexes of the records without a key; only filled when asked for.
    without_key: list[int]

    @property
    def timestamps_ms(self) -> list[int]:
        return self.times if isinstance(self.times, list) else self.times.tolist()


def _found(timestamps_ms: list[int], without_key: list[int]) -> Walk:
    earliest, latest = min(timestamps_ms, default=0), max(timestamps_ms, default=0)
    return Walk(timestamps_ms, earliest, latest, without_key)


def walk_quickly(batch: memoryview, *, find_missing_keys: bool = False) -> Walk | None:
    """As `walk`, where the records are alike and nothing is wrong; None otherwise."""
    count = _COUNT.unpack_from(batch, _COUNT_AT)[0]
    attributes = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0]
    if count < MIN_RECORDS or attributes & _LOG_APPEND_TIME or count > len(batch):
        return None
    base_timestamp = _BASE_TIMESTAMP.unpack_from(batch, _BASE_TIMESTAMP_AT)[0]
    found = walk_uniform(batch, HEADER_SIZE, count, base_timestamp)
    if found is None:
        return None
    times = found.timestamps_ms
    without_key = found.without_key if find_missing_keys else []
    return Walk(times, int(times.min()), int(times.max()), without_key)


def walk(batch: memoryview, *, find_missing_keys: bool = False) -> Walk:
    """Check every record of an uncompressed batch, with `PADDING` readable behind the view.

    Offset deltas must be 0, 1, 2…; the count must match and nothing may follow the last record.
    Raises BadRecords.
    """
    count = _COUNT.unpack_from(batch, _COUNT_AT)[0]
    if count < 0 or count * MIN_RECORD_SIZE > len(batch) - HEADER_SIZE:
        raise BadRecords(f"{count} records in {len(batch) - HEADER_SIZE} bytes")
    try:
        return _walk_compiled(batch, find_missing_keys)
    except (BadRecords, CorruptRecordException, UnicodeDecodeError, MemoryError, OverflowError):
        return _walk_exactly(batch, count, find_missing_keys)


def _walk_compiled(batch: memoryview, find_missing_keys: bool) -> Walk:
    base_offset = int.from_bytes(batch[:8], "big", signed=True)
    timestamps: list[Any] = []
    without_key: list[int] = []
    append = timestamps.append
    expected = base_offset
    if find_missing_keys:
        for record in DefaultRecordBatch(batch):
            if record.offset != expected:
                raise BadRecords(_wrong_offset(record.offset - base_offset, expected - base_offset))
            if record.key is None:
                without_key.append(expected - base_offset)
            expected += 1
            append(record.timestamp)
    else:
        for record in DefaultRecordBatch(batch):
            if record.offset != expected:
                raise BadRecords(_wrong_offset(record.offset - base_offset, expected - base_offset))
            expected += 1
            append(record.timestamp)
    # The codec gives None for -1.
    if None in timestamps:
        timestamps = [NO_TIMESTAMP if time is None else time for time in timestamps]
    return _found(timestamps, without_key)


def _wrong_offset(found: int, expected: int) -> str:
    return f"record {expected} has offset delta {found}"


def _walk_exactly(batch: memoryview, count: int, find_missing_keys: bool) -> Walk:
    attributes = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0]
    append_time: int | None = None
    if attributes & _LOG_APPEND_TIME:
        append_time = _BASE_TIMESTAMP.unpack_from(batch, _MAX_TIMESTAMP_AT)[0]
    base_timestamp = _BASE_TIMESTAMP.unpack_from(batch, _BASE_TIMESTAMP_AT)[0]
    timestamps: list[int] = []
    without_key: list[int] = []
    at = HEADER_SIZE
    for index in range(count):
        size, at = _varint(batch, at, 5)
        end = at + size
        # Attributes are one byte, of any value.
        if size < 1 or end > len(batch):
            raise BadRecords(f"record {index} of {size} bytes where {len(batch) - at} are left")
        timestamp_delta, at = _varint(batch, at + 1, 10)
        offset_delta, at = _varint(batch, at, 5)
        if offset_delta != index:
            raise BadRecords(_wrong_offset(offset_delta, index))
        key_size, at = _varint(batch, at, 5)
        at = _skip(at, key_size, end)
        value_size, at = _varint(batch, at, 5)
        at = _skip(at, value_size, end)
        at = _skip_headers(batch, at, end)
        if at != end:
            raise BadRecords(f"record {index} does not fill its {size} bytes")
        if find_missing_keys and key_size < 0:
            without_key.append(index)
        timestamp = _wrapped(base_timestamp + timestamp_delta)
        timestamps.append(timestamp if append_time is None else append_time)
    if at != len(batch):
        raise BadRecords(f"{len(batch) - at} bytes after the last of {count} records")
    return _found(timestamps, without_key)


def _skip_headers(batch: memoryview, at: int, end: int) -> int:
    count, at = _varint(batch, at, 5)
    # A header takes two bytes at the least.
    if count < 0 or count * 2 > end - at:
        raise BadRecords(f"{count} headers in {end - at} bytes")
    for _ in range(count):
        key_size, at = _varint(batch, at, 5)
        if key_size < 0:
            raise BadRecords("a header without a key")
        at = _skip(at, key_size, end)
        value_size, at = _varint(batch, at, 5)
        at = _skip(at, value_size, end)
    return at


def _skip(at: int, size: int, end: int) -> int:
    """Step over a value; a negative size is null and takes no room."""
    after = at + max(size, 0)
    if after > end:
        raise BadRecords(f"a value of {size} bytes where {end - at} are left in its record")
    return after


def _varint(batch: memoryview, at: int, max_size: int) -> tuple[int, int]:
    """A zigzag varint; returns it and the offset after it."""
    value = 0
    for shift in range(0, 7 * max_size, 7):
        if at >= len(batch):
            raise BadRecords("the records end in the middle of a varint")
        byte = batch[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Java drops the bits that do not fit, and so must we, to see what consumers see.
            value &= 0xFFFFFFFF if max_size == 5 else 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
    raise BadRecords(f"a varint of more than {max_size} bytes")


def _wrapped(value: int) -> int:
    """An int64 that overflows as in Java and in the compiled codec."""
    return (value + _INT64_SPAN // 2) % _INT64_SPAN - _INT64_SPAN // 2
