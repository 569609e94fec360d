"""Record batches of format 2: header, validation at produce, patching at read.

`validate_produce` refuses what Apache Kafka 4 refuses, with Kafka's codes (ProduceRequest,
UnifiedLog and LogValidator, in that order). It differs on purpose where Kafka answers
UNKNOWN_SERVER_ERROR for a client's mistake (no records at all, an unknown codec, bytes that the
codec cannot unpack), where Kafka repairs or lets pass offset deltas that are not 0, 1, 2…
(here INVALID_RECORD), and in these:

- a batch with the transactional bit gets UNSUPPORTED_FOR_MESSAGE_FORMAT, Kafka's code for a log
  whose format cannot hold transactions. No client retries it;
- a batch that unpacks to more than the cap gets MESSAGE_TOO_LARGE: Java splits it and goes on;
- a producer id without an epoch gets INVALID_RECORD.

An accepted batch has base offset 0, a max timestamp that is that of its records, and a CRC that
is right. The base offset and the leader epoch are outside the CRC: `patch` sets them at read.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Literal, NamedTuple

from crc32c import crc32c

from protocol.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    CorruptCompression,
    TooLarge,
    decompress,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.records import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    PADDING,
    BadRecords,
    RecordTime,
    Walk,
    walk,
    walk_quickly,
)
from protocol.writer import Buffer

__all__ = (
    "HEADER_SIZE",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "AcceptedBatch",
    "BatchHeader",
    "InvalidBatch",
    "RecordError",
    "RecordTime",
    "first_record_at_or_after",
    "iter_batches",
    "parse_header",
    "patch",
    "record_with_max_timestamp",
    "validate_produce",
)

TimestampType = Literal["CreateTime", "LogAppendTime"]

NO_PRODUCER_ID = -1
_HEADER = Struct(">qiibIhiqqqhii")
# Base offset and length come before what the length counts.
_LOG_OVERHEAD = 12
_LENGTH = Struct(">i")
_LENGTH_AT = 8
_LEADER_EPOCH = Struct(">i")
_LEADER_EPOCH_AT = 12
_BASE_OFFSET = Struct(">q")
_MAGIC_AT = 16
_CRC = Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_AT = 35
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40
# The least that can follow base offset and length in any message format.
_MIN_LEGACY_LENGTH = 14
_CURRENT_MAGIC = 2
_FIRST_ZSTD_VERSION = 7
# Kafka lists them all; a client that errs a million times doesn't need a hundred megabytes.
_MAX_RECORD_ERRORS = 1000
_MAX_SHOWN_ERRORS = 3


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Of the whole batch, in bytes."""
        return self.batch_length + _LOG_OVERHEAD

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        """The compression's id, which need not be a known one."""
        return self.attributes & _CODEC_MASK

    @property
    def compression(self) -> Compression:
        return Compression(self.codec_id)

    @property
    def timestamp_type(self) -> TimestampType:
        return "LogAppendTime" if self.attributes & _LOG_APPEND_TIME else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & _DELETE_HORIZON)


class RecordError(NamedTuple):
    """A record that made its batch invalid, for `record_errors` of a Produce response."""

    batch_index: int
    message: str


_BEFORE_LOG = (ErrorCode.corrupt_message, ErrorCode.message_too_large)


class InvalidBatch(KafkaError):
    """A batch that is refused, with the code that its partition is answered with.

    `message` says why; the client is told `client_message`, which is Kafka's and mostly nothing.
    `before_log`: Kafka refuses such a batch before it looks at the partition's log."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        record_errors: tuple[RecordError, ...] = (),
        *,
        client_message: str | None = None,
        before_log: bool = False,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors
        self.client_message = client_message
        self.before_log = before_log or code in _BEFORE_LOG


class AcceptedBatch(NamedTuple):
    """A batch that may be written as it is: `view` holds exactly its bytes."""

    view: memoryview
    size: int
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    compression: Compression
    # The time stamped on the batch, or -1 where the topic keeps the client's.
    log_append_time_ms: int

    @property
    def has_producer(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


def parse_header(data: Buffer, offset: int = 0) -> BatchHeader:
    """The header of the batch at `offset`; InvalidBatch(corrupt_message) if it is cut off."""
    if len(data) - offset < HEADER_SIZE:
        left = len(data) - offset
        raise InvalidBatch(ErrorCode.corrupt_message, f"a batch header in {left} bytes")
    return BatchHeader._make(_HEADER.unpack_from(data, offset))


def iter_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Where each batch in a run of whole batches begins, with its header.

    Raises InvalidBatch(corrupt_message) where the bytes are no run of whole batches.
    """
    at = 0
    while at < len(data):
        header = parse_header(data, at)
        if header.size < HEADER_SIZE or at + header.size > len(data):
            message = f"a batch of {header.size} bytes where {len(data) - at} are left"
            raise InvalidBatch(ErrorCode.corrupt_message, message)
        yield at, header
        at += header.size


def patch(target: bytearray | memoryview, offset: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at `offset` of `target`, in place."""
    _BASE_OFFSET.pack_into(target, offset, base_offset)
    _LEADER_EPOCH.pack_into(target, offset + _LEADER_EPOCH_AT, leader_epoch)


def validate_produce(
    records: memoryview | None,
    *,
    api_version: int,
    timestamp_type: TimestampType,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    max_message_bytes: int,
    require_key: bool = False,
    partition: str = "",
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> AcceptedBatch:
    """Check the records of one partition of a produce request; raises InvalidBatch.

    Timestamps and CRC are corrected in place where the topic's settings ask for it, so `records`
    should be writable; a read-only view is copied if need be.
    """
    view = _single_batch(records, api_version)
    header = _checked_header(view, max_message_bytes)
    _check_client_batch(header)
    found = _walked(view, header, require_key, max_decompressed_bytes)
    if timestamp_type == "LogAppendTime":
        _check_no_log_append_time(header)
        min_timestamp = max_timestamp = log_append_time = now_ms
    else:
        min_timestamp, max_timestamp = found.earliest_ms, found.latest_ms
        if min_timestamp < now_ms - before_max_ms or max_timestamp > now_ms + after_max_ms:
            _check_timestamps(found, now_ms - before_max_ms, now_ms + after_max_ms)
        # As in Kafka: times before the last millisecond of 1969 do not count.
        max_timestamp = max(max_timestamp, NO_TIMESTAMP)
        log_append_time = NO_TIMESTAMP
    _check_keys(found, partition)
    view = _stamped(view, header, timestamp_type, max_timestamp)
    return AcceptedBatch(
        view,
        header.size,
        header.record_count,
        min_timestamp,
        max_timestamp,
        header.producer_id if header.producer_id >= 0 else NO_PRODUCER_ID,
        header.producer_epoch,
        header.base_sequence,
        header.compression,
        log_append_time,
    )


def first_record_at_or_after(
    batch: Buffer,
    timestamp_ms: int,
    *,
    from_delta: int = 0,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordTime | None:
    """The first record of a stored batch with at least this timestamp, if there is one; not
    one of the first `from_delta` records."""
    for index, time_ms in enumerate(_timestamps(batch, max_decompressed_bytes)):
        if index >= from_delta and time_ms >= timestamp_ms:
            return RecordTime(index, time_ms)
    return None


def record_with_max_timestamp(
    batch: Buffer,
    *,
    from_delta: int = 0,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordTime | None:
    """The first of a stored batch's records, without the first `from_delta`, with the largest
    timestamp; None if there is none."""
    times = _timestamps(batch, max_decompressed_bytes)[from_delta:]
    if not times:
        return None
    latest = max(times)
    return RecordTime(from_delta + times.index(latest), latest)


def _timestamps(batch: Buffer, max_decompressed_bytes: int) -> list[int]:
    view = memoryview(batch)
    header = _checked_header(view, len(view), any_base_offset=True)
    return _walked(view[: header.size], header, False, max_decompressed_bytes).timestamps_ms


# The steps of validation, in Kafka's order.


def _single_batch(records: memoryview | None, api_version: int) -> memoryview:
    """The one batch of a partition; what is left of a second one that is cut off is dropped."""
    if records is None:
        raise InvalidBatch(ErrorCode.invalid_record, "no record batch", before_log=True)
    size = _next_batch_size(records)
    if size is None:
        message = f"no whole record batch in {len(records)} bytes"
        raise InvalidBatch(ErrorCode.invalid_record, message, before_log=True)
    if records[_MAGIC_AT] != _CURRENT_MAGIC:
        message = f"message format {records[_MAGIC_AT]}; only {_CURRENT_MAGIC} is accepted"
        raise InvalidBatch(ErrorCode.invalid_record, message, before_log=True)
    if size >= HEADER_SIZE and api_version < _FIRST_ZSTD_VERSION:
        codec_id = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)[0] & _CODEC_MASK
        if codec_id == Compression.ZSTD:
            message = f"zstd in Produce v{api_version}; it needs v{_FIRST_ZSTD_VERSION}"
            code = ErrorCode.unsupported_compression_type
            raise InvalidBatch(code, message, before_log=True)
        if codec_id > max(Compression):
            message = f"unknown compression {codec_id}"
            raise InvalidBatch(ErrorCode.unknown_server_error, message, before_log=True)
    if _next_batch_size(records[size:]) is not None:
        message = "more than one record batch"
        raise InvalidBatch(ErrorCode.invalid_record, message, before_log=True)
    return records[:size]


def _next_batch_size(data: memoryview) -> int | None:
    """As Kafka steps through batches: None where there is no whole one."""
    if len(data) < _LOG_OVERHEAD:
        return None
    length = _LENGTH.unpack_from(data, _LENGTH_AT)[0]
    if length < _MIN_LEGACY_LENGTH:
        raise InvalidBatch(
            ErrorCode.corrupt_message,
            f"a batch of length {length}",
            client_message=f"Record size {length} is less than the minimum record overhead "
            f"({_MIN_LEGACY_LENGTH})",
        )
    if len(data) <= _MAGIC_AT:
        return None
    if data[_MAGIC_AT] > _CURRENT_MAGIC:
        magic = data[_MAGIC_AT]
        message = f"Invalid magic found in record: {magic if magic < 128 else magic - 256}"
        raise InvalidBatch(ErrorCode.corrupt_message, message, client_message=message)
    size: int = length + _LOG_OVERHEAD
    return size if size <= len(data) else None


def _checked_header(
    view: memoryview, max_message_bytes: int, *, any_base_offset: bool = False
) -> BatchHeader:
    if len(view) < HEADER_SIZE:
        raise InvalidBatch(ErrorCode.corrupt_message, f"a batch of {len(view)} bytes")
    header = parse_header(view)
    if header.base_offset != 0 and not any_base_offset:
        message = f"base offset {header.base_offset}; a client's batch starts at 0"
        raise InvalidBatch(ErrorCode.invalid_record, message)
    if header.size > max_message_bytes:
        message = f"a batch of {header.size} bytes, {max_message_bytes} are allowed"
        raise InvalidBatch(ErrorCode.message_too_large, message)
    if not HEADER_SIZE <= header.size <= len(view):
        message = f"a batch of {header.size} bytes where {len(view)} are left"
        raise InvalidBatch(ErrorCode.corrupt_message, message)
    computed = crc32c(view[_ATTRIBUTES_AT : header.size])
    if computed != header.crc:
        message = f"CRC {header.crc:#010x} stored, {computed:#010x} computed"
        raise InvalidBatch(ErrorCode.corrupt_message, message)
    return header


def _check_client_batch(header: BatchHeader) -> None:
    problem = None
    if header.last_offset_delta < 0:
        problem = f"last offset delta {header.last_offset_delta}"
    elif header.record_count <= 0:
        problem = f"a record count of {header.record_count}"
    elif header.record_count != header.last_offset_delta + 1:
        problem = f"{header.record_count} records, last offset delta {header.last_offset_delta}"
    elif header.is_control:
        problem = "clients may not write control records"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        problem = f"base sequence {header.base_sequence} of producer {header.producer_id}"
    elif header.producer_id >= 0 and header.producer_epoch < 0:
        problem = f"epoch {header.producer_epoch} of producer {header.producer_id}"
    if problem is not None:
        raise InvalidBatch(ErrorCode.invalid_record, problem)
    if header.is_transactional:
        message = "transactional records are not supported"
        code = ErrorCode.transactional_id_authorization_failed
        raise InvalidBatch(code, message, before_log=True)
    if header.codec_id > max(Compression):
        message = f"unknown compression {header.codec_id}"
        raise InvalidBatch(ErrorCode.unknown_server_error, message)


def _walked(
    view: memoryview, header: BatchHeader, require_key: bool, max_decompressed_bytes: int
) -> Walk:
    if header.codec_id != Compression.NONE and len(view) == HEADER_SIZE:
        raise InvalidBatch(ErrorCode.invalid_record, "a compressed batch without a payload")
    try:
        if header.codec_id == Compression.NONE:
            quick = walk_quickly(view, find_missing_keys=require_key)
            if quick is not None:
                return quick
            padded = memoryview(b"".join((view, PADDING)))
            return walk(padded[: len(view)], find_missing_keys=require_key)
        body, size = decompress(
            header.compression,
            view[HEADER_SIZE:],
            max_decompressed_bytes,
            before=HEADER_SIZE,
            after=len(PADDING),
        )
        # The walk must not decompress: it is shown an uncompressed batch.
        body[:HEADER_SIZE] = view[:HEADER_SIZE]
        _ATTRIBUTES.pack_into(body, _ATTRIBUTES_AT, header.attributes & ~_CODEC_MASK)
        return walk(memoryview(body)[: HEADER_SIZE + size], find_missing_keys=require_key)
    except TooLarge as error:
        raise InvalidBatch(ErrorCode.message_too_large, str(error)) from error
    except CorruptCompression as error:
        # Kafka has no code for it.
        raise InvalidBatch(ErrorCode.unknown_server_error, str(error)) from error
    except BadRecords as error:
        raise InvalidBatch(ErrorCode.invalid_record, str(error)) from error


# A batch with a wrong timestamp and a missing key is told of the timestamp, as in Kafka.


def _check_no_log_append_time(header: BatchHeader) -> None:
    if header.timestamp_type == "LogAppendTime":
        message = "a client's batch may not have the timestamp type LogAppendTime"
        raise InvalidBatch(ErrorCode.invalid_timestamp, message)


def _check_timestamps(found: Walk, earliest_ms: int, latest_ms: int) -> None:
    without_key = set(found.without_key)
    outside = [
        RecordError(
            index,
            f"Timestamp {time} of message with offset {index} is out of range. "
            f"The timestamp should be within [{earliest_ms}, {latest_ms}]",
        )
        for index, time in enumerate(found.timestamps_ms)
        if time != NO_TIMESTAMP
        and not earliest_ms <= time <= latest_ms
        and index not in without_key
    ]
    if outside:
        message = f"{len(outside)} records with a timestamp outside [{earliest_ms}, {latest_ms}]"
        errors = tuple(outside[:_MAX_RECORD_ERRORS])
        raise InvalidBatch(
            ErrorCode.invalid_timestamp,
            message,
            errors,
            client_message="One or more records have been rejected due to invalid timestamp",
        )


def _check_keys(found: Walk, partition: str) -> None:
    if found.without_key:
        errors = tuple(
            RecordError(
                index,
                f"Compacted topic cannot accept message without key in topic partition {partition}",
            )
            for index in found.without_key[:_MAX_RECORD_ERRORS]
        )
        shown = ", ".join(
            f"RecordError(batchIndex={each.batch_index}, message='{each.message}')"
            for each in errors[:_MAX_SHOWN_ERRORS]
        )
        message = (
            f"One or more records have been rejected due to {len(found.without_key)} record errors "
            f"in total, and only showing the first three errors at most: [{shown}]"
        )
        raise InvalidBatch(ErrorCode.invalid_record, message, errors, client_message=message)


def _stamped(
    view: memoryview, header: BatchHeader, timestamp_type: TimestampType, max_timestamp_ms: int
) -> memoryview:
    """The batch with this timestamp type and max timestamp, its CRC redone where they differ."""
    if header.timestamp_type == timestamp_type and header.max_timestamp == max_timestamp_ms:
        return view
    if view.readonly:
        view = memoryview(bytearray(view))
    attributes = header.attributes & ~_LOG_APPEND_TIME
    if timestamp_type == "LogAppendTime":
        attributes |= _LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(view, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(view, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    _CRC.pack_into(view, _CRC_AT, crc32c(view[_ATTRIBUTES_AT:]))
    return view
