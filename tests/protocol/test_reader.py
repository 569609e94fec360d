"""The bounds of the reader, and the values that kio's own reader refuses."""

import struct
import tracemalloc
from datetime import timedelta

import pytest

from protocol.errors import ErrorCode, Malformed
from protocol.messages import nested, request_class, response_class
from protocol.reader import MAX_ELEMENTS, read_message, read_uvarint, skip_tagged_fields
from protocol.writer import uvarint

FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 1, 2, 3, 18, 19


def malformed(cls: type[object], body: bytes, match: str = ".") -> None:
    with pytest.raises(Malformed, match=match):
        read_message(cls, memoryview(body))


@pytest.mark.parametrize("version", range(9, 14))
def test_the_body_that_aborts_kios_reader(version: int) -> None:
    malformed(request_class(METADATA, version), bytes.fromhex("ffffffff0f"))


@pytest.mark.parametrize("version", range(14))
def test_an_array_larger_than_the_message_reserves_nothing(version: int) -> None:
    cls = request_class(METADATA, version)
    count = 2**31 - 2
    body = uvarint(count + 1) if cls.__flexible__ else struct.pack(">i", count)
    tracemalloc.start()
    try:
        malformed(cls, body + bytes(100), f"{count} elements where 100 bytes are left")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_array_is_bounded_by_the_smallest_size_of_its_elements() -> None:
    # A topic of Metadata v9 is a compact string and its tags: two bytes at the least.
    cls = request_class(METADATA, 9)
    rest = bytes((1, 0, 0, 0, 0))
    topics = bytes((1, 0)) * 5
    message, end = read_message(cls, memoryview(uvarint(6) + topics + rest))
    assert len(message.topics) == 5
    assert end == 1 + len(topics) + len(rest) - 1
    malformed(cls, uvarint(9) + topics + rest, "8 elements where 15 bytes are left")


def test_a_message_has_a_limited_number_of_elements() -> None:
    # DescribeLogDirs v2: topics of a name and an array of partitions.
    cls = request_class(35, 2)
    partitions = MAX_ELEMENTS // 2
    topic = uvarint(1) + uvarint(partitions + 1) + bytes(4 * partitions) + b"\0"
    message, _ = read_message(cls, memoryview(uvarint(2) + topic + b"\0"))
    assert len(message.topics[0].partitions) == partitions
    malformed(cls, uvarint(3) + topic * 2 + b"\0", "array elements in a message")


def test_lengths_beyond_the_message() -> None:
    malformed(request_class(METADATA, 4), struct.pack(">ih", 1, 300) + b"topic", "300 bytes")
    malformed(request_class(METADATA, 9), b"\x02\xff\x01topic\x00\x00\x00\x00\x00", "254 bytes")


def test_null_where_the_schema_has_none() -> None:
    malformed(request_class(CREATE_TOPICS, 5), b"\x00" + bytes(10), "null in topics")
    malformed(request_class(CREATE_TOPICS, 2), struct.pack(">i", -1) + bytes(10), "null in topics")
    malformed(request_class(METADATA, 4), struct.pack(">ih", 1, -1) + bytes(9), "null in name")
    malformed(request_class(METADATA, 9), b"\x02\x00" + bytes(9), "null in name")
    # Metadata v0 has no null for its topics, v1 has: all topics.
    malformed(request_class(METADATA, 0), struct.pack(">i", -1), "null in topics")
    message, _ = read_message(request_class(METADATA, 1), memoryview(struct.pack(">i", -1)))
    assert message.topics is None


def test_strings_must_be_utf8() -> None:
    malformed(request_class(METADATA, 1), struct.pack(">ih", 1, 2) + b"\xc3\x28", "not UTF-8")


def test_varints() -> None:
    assert read_uvarint(memoryview(b"\xff\xff\xff\xff\x07"), 0) == (2**31 - 1, 5)
    for overlong in (b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(Malformed):
            read_uvarint(memoryview(overlong), 0)


def test_tagged_fields_are_skipped_with_their_size() -> None:
    section = b"\x02" + b"\x07\x03abc" + b"\xff\x01\x00"
    assert skip_tagged_fields(memoryview(section + b"rest"), 0) == len(section)
    with pytest.raises(Malformed):
        skip_tagged_fields(memoryview(b"\x01\x07\x04abc"), 0)


def test_unknown_tags_are_skipped_and_known_ones_read() -> None:
    cls = request_class(FETCH, 15)
    start = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1) + b"\x01\x01\x01"
    cluster = b"\x00\x05" + b"\x05dray"
    replica = b"\x01\x0d" + struct.pack(">iq", 3, 9) + b"\x00"
    unknown = b"\x63\x04\xff\xff\xff\xff"
    message, end = read_message(cls, memoryview(start + b"\x03" + cluster + replica + unknown))
    assert end == len(start) + 1 + len(cluster) + len(replica) + len(unknown)
    assert message.cluster_id == "dray"
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (3, 9)
    absent, _ = read_message(cls, memoryview(start + b"\x00"))
    assert absent.cluster_id is None
    assert absent.replica_state == nested(cls, "replica_state")()


@pytest.mark.parametrize("size", (4, 6))
def test_a_known_tag_must_fill_its_size(size: int) -> None:
    start = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1) + b"\x01\x01\x01"
    body = start + b"\x01\x00" + bytes((size,)) + b"\x05dray" + bytes(4)
    malformed(request_class(FETCH, 15), body)


@pytest.mark.parametrize("timestamp", (-1, -2, -3, -4, -5, -(2**63), 0, 2**63 - 1))
def test_any_timestamp_of_list_offsets(timestamp: int) -> None:
    body = struct.pack(">iih", -1, 1, 1) + b"t" + struct.pack(">iiq", 1, 0, timestamp)
    message, end = read_message(request_class(LIST_OFFSETS, 1), memoryview(body))
    assert message.topics[0].partitions[0].timestamp == timestamp
    assert end == len(body)


def test_any_byte_is_a_bool() -> None:
    body = struct.pack(">i", -1) + b"\x07"
    message, _ = read_message(request_class(METADATA, 4), memoryview(body))
    assert message.allow_auto_topic_creation is True


@pytest.mark.parametrize("timeout_ms", (-(2**31), -1, 0, 2**31 - 1))
def test_any_timeout(timeout_ms: int) -> None:
    body = struct.pack(">hhii", -1, 1, timeout_ms, 0)
    message, _ = read_message(request_class(0, 3), memoryview(body))
    assert message.timeout == timedelta(milliseconds=timeout_ms)


@pytest.mark.parametrize("period_ms", (-(2**63), -1, 2**63 - 1))
def test_durations_beyond_timedelta_are_clamped(period_ms: int) -> None:
    # RenewDelegationToken v1: an HMAC and a period.
    body = struct.pack(">i", 0) + struct.pack(">q", period_ms)
    message, _ = read_message(request_class(39, 1), memoryview(body))
    day = timedelta(days=1)
    if period_ms == -1:
        assert message.renew_period == timedelta(milliseconds=-1)
    elif period_ms > 0:
        assert message.renew_period > timedelta.max - day
    else:
        assert message.renew_period < timedelta.min + day


def test_points_in_time_and_error_codes_that_python_cannot_hold() -> None:
    cls = response_class(0, 3)
    for time_ms in (-1, -5, 2**63 - 1):
        body = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iihqqi", 1, 0, 12_345, 7, time_ms, 0)
        message, end = read_message(cls, memoryview(body))
        partition = message.responses[0].partition_responses[0]
        assert partition.log_append_time is None
        assert partition.error_code is ErrorCode.unknown_server_error
        assert end == len(body)


def test_records_are_views_of_the_frame() -> None:
    frame = bytearray(struct.pack(">hhii", -1, 1, 0, 1) + b"\x00\x01t")
    frame += struct.pack(">iii", 1, 0, 4) + b"wxyz"
    message, _ = read_message(request_class(0, 3), memoryview(frame))
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[-4:] = b"WXYZ"
    assert bytes(records) == b"WXYZ"


def test_a_request_without_a_body() -> None:
    assert read_message(request_class(API_VERSIONS, 0), memoryview(b""))[1] == 0
