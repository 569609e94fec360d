"""What is accepted at produce, and the code for what is not.

What is refused with which code is a table of its own, `refused.py`.
"""

from collections.abc import Callable

import cramjam
import pytest
from crc32c import crc32c

from protocol.batch import (
    AcceptedBatch,
    InvalidBatch,
    RecordError,
    TimestampType,
    parse_header,
    validate_produce,
)
from protocol.compression import Compression
from protocol.errors import ErrorCode
from tests.protocol.bomb import zstd_bomb
from tests.protocol.building import (
    BASE_MS,
    HOUR_MS,
    NOW_MS,
    batch,
    record,
    records,
    xerial,
)
from tests.protocol.refused import REFUSED, REFUSED_COMPRESSED, Refused

TWO = records(2)


def validate(
    data: bytes | None,
    *,
    api_version: int = 9,
    timestamp_type: TimestampType = "CreateTime",
    require_key: bool = False,
    max_message_bytes: int = 100_000,
    max_decompressed_bytes: int = 2**20,
) -> AcceptedBatch:
    return validate_produce(
        None if data is None else memoryview(bytearray(data)),
        api_version=api_version,
        timestamp_type=timestamp_type,
        now_ms=NOW_MS,
        before_max_ms=24 * HOUR_MS,
        after_max_ms=HOUR_MS,
        max_message_bytes=max_message_bytes,
        require_key=require_key,
        max_decompressed_bytes=max_decompressed_bytes,
    )


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
def test_refused(case: Refused) -> None:
    with pytest.raises(InvalidBatch) as raised:
        validate(case.data)
    assert raised.value.code is case.code
    assert raised.value.message


@pytest.mark.parametrize("codec", (1, 2, 3, 4))
@pytest.mark.parametrize("case", REFUSED_COMPRESSED, ids=lambda case: case[0])
def test_refused_inside_compression(case: tuple[str, Callable[[int], bytes]], codec: int) -> None:
    with pytest.raises(InvalidBatch) as raised:
        validate(case[1](codec))
    # What can't be unpacked has no code of its own in Kafka.
    unpacks = not case[0].startswith(("garbage", "cut"))
    expected = ErrorCode.invalid_record if unpacks else ErrorCode.unknown_server_error
    assert raised.value.code is expected


def test_zstd_needs_version_7() -> None:
    assert validate(batch(codec=4), api_version=7).compression is Compression.ZSTD
    for data in (batch(codec=4), batch(codec=4, crc=1)):
        with pytest.raises(InvalidBatch) as raised:
            validate(data, api_version=6)
        assert raised.value.code is ErrorCode.unsupported_compression_type


def test_a_batch_that_unpacks_to_too_much() -> None:
    for data in (
        batch(codec=4, body=zstd_bomb(4096)),
        batch([record(value=bytes(2**20))], codec=1),
    ):
        with pytest.raises(InvalidBatch) as raised:
            validate(data)
        assert raised.value.code is ErrorCode.message_too_large


@pytest.mark.parametrize("codec", (0, 1, 2, 3, 4))
def test_accepted(codec: int) -> None:
    data = batch(
        [record(0, timestamp_delta=3), record(1), record(2, timestamp_delta=2)],
        codec=codec,
        max_timestamp=BASE_MS + 3,
        producer_id=9,
        producer_epoch=2,
        base_sequence=100,
    )
    accepted = validate(data)
    assert accepted.view == data
    assert accepted[1:] == (len(data), 3, BASE_MS, BASE_MS + 3, 9, 2, 100, Compression(codec), -1)
    assert accepted.has_producer


def test_snappy_without_framing() -> None:
    body = bytes(cramjam.snappy.compress_raw(b"".join(TWO)))
    assert validate(batch(TWO, codec=2, body=body)).record_count == 2
    assert validate(batch(TWO, codec=2, body=xerial(b"".join(TWO), 10))).record_count == 2


def test_what_follows_the_batch_is_dropped_where_it_is_no_batch() -> None:
    for rest in (b"abcde", batch()[:-3]):
        assert validate(batch() + rest).view == batch()


@pytest.mark.parametrize(
    "one",
    (
        record(attributes=5),
        record(attributes=0x80),
        record(headers=[(b"k", b"v"), (b"", None), (b"k", b"")]),
        # Not UTF-8: Kafka takes it, and consumers see its bytes.
        record(headers=[(b"\xff\xfe", b"v")]),
        record(key=None, value=None),
        record(key=b"", value=b""),
        record(value=bytes(range(256)) * 300),
    ),
)
def test_unusual_records(one: bytes) -> None:
    for codec in (0, 4):
        assert validate(batch([one, record(1)], codec=codec)).record_count == 2


def test_no_producer() -> None:
    for producer_id in (-1, -2):
        accepted = validate(batch(producer_id=producer_id, producer_epoch=3, base_sequence=7))
        assert (accepted.producer_id, accepted.has_producer) == (-1, False)


def test_records_without_timestamps() -> None:
    accepted = validate(batch(base_timestamp=-1, max_timestamp=-1))
    assert (accepted.min_timestamp_ms, accepted.max_timestamp_ms) == (-1, -1)


def test_bounds_of_timestamps_are_inclusive() -> None:
    for time_ms in (NOW_MS + HOUR_MS, NOW_MS - 24 * HOUR_MS):
        accepted = validate(batch(base_timestamp=time_ms, max_timestamp=time_ms))
        assert accepted.max_timestamp_ms == time_ms


def test_compacted_topics_need_keys() -> None:
    data = batch([record(0), record(1, key=None), record(2, key=b"")])
    assert validate(data).record_count == 3
    # The slow walk finds them too.
    unusual = batch([record(0, headers=[(b"\xff", b"")]), record(1, key=None), record(2)])
    for candidate in (data, unusual):
        with pytest.raises(InvalidBatch) as raised:
            validate(candidate, require_key=True)
        assert raised.value.code is ErrorCode.invalid_record
        assert [error.batch_index for error in raised.value.record_errors] == [1]


def test_a_wrong_timestamp_comes_before_a_missing_key() -> None:
    keyless = record(0, key=None)
    late = record(1, timestamp_delta=2 * HOUR_MS)
    with pytest.raises(InvalidBatch) as raised:
        validate(batch([keyless, late]), require_key=True)
    assert raised.value.code is ErrorCode.invalid_timestamp
    # Of a record that has both mistakes the missing key counts.
    with pytest.raises(InvalidBatch) as raised:
        validate(batch([record(key=None, timestamp_delta=2 * HOUR_MS)]), require_key=True)
    assert raised.value.code is ErrorCode.invalid_record


def test_errors_name_the_records() -> None:
    late = [record(index, timestamp_delta=2 * HOUR_MS) for index in range(1, 10)]
    with pytest.raises(InvalidBatch) as raised:
        validate(batch([record(0), *late]))
    errors = raised.value.record_errors
    assert [error.batch_index for error in errors] == list(range(1, 10))
    assert all(isinstance(error, RecordError) for error in errors)


def crc_is_right(view: memoryview) -> bool:
    return crc32c(view[21:]) == parse_header(view).crc


@pytest.mark.parametrize("codec", (0, 3))
def test_log_append_time_is_stamped(codec: int) -> None:
    data = bytearray(batch(TWO, codec=codec, base_timestamp=5))
    accepted = validate_produce(
        memoryview(data),
        api_version=9,
        timestamp_type="LogAppendTime",
        now_ms=NOW_MS,
        before_max_ms=0,
        after_max_ms=0,
        max_message_bytes=10_000,
    )
    header = parse_header(data)
    assert (header.max_timestamp, header.timestamp_type) == (NOW_MS, "LogAppendTime")
    assert (header.base_timestamp, header.codec_id) == (5, codec)
    assert accepted[3:5] == (NOW_MS, NOW_MS)
    assert accepted.log_append_time_ms == NOW_MS
    # In place, in the frame that the batch came in.
    assert accepted.view.obj is data
    assert crc_is_right(accepted.view)


def test_a_client_may_not_claim_log_append_time() -> None:
    with pytest.raises(InvalidBatch) as raised:
        validate(batch(attributes=8), timestamp_type="LogAppendTime")
    assert raised.value.code is ErrorCode.invalid_timestamp
    # On a topic of create times Kafka clears the bit; the records have the batch's time.
    accepted = validate(batch(attributes=8, max_timestamp=BASE_MS + 7))
    header = parse_header(accepted.view)
    assert (header.timestamp_type, header.max_timestamp) == ("CreateTime", BASE_MS + 7)
    assert crc_is_right(accepted.view)


def test_a_wrong_max_timestamp_is_corrected() -> None:
    data = batch([record(0, timestamp_delta=11)], max_timestamp=1)
    accepted = validate(data)
    assert parse_header(accepted.view).max_timestamp == accepted.max_timestamp_ms == BASE_MS + 11
    assert crc_is_right(accepted.view)


def test_a_read_only_view_is_copied_before_it_is_stamped() -> None:
    data = batch(max_timestamp=1)
    accepted = validate_produce(
        memoryview(data),
        api_version=9,
        timestamp_type="CreateTime",
        now_ms=NOW_MS,
        before_max_ms=HOUR_MS,
        after_max_ms=HOUR_MS,
        max_message_bytes=10_000,
    )
    assert parse_header(data).max_timestamp == 1
    assert parse_header(accepted.view).max_timestamp == BASE_MS
