"""Batches of garbage with a right CRC: accepted or InvalidBatch, and nothing else.

The CRC is redone after each mutation; without that it stops nearly everything. The compiled walk
is held against the exact one, and both against another implementation.
"""

import struct

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.batch import InvalidBatch, iter_batches, record_with_max_timestamp, validate_produce
from protocol.compression import Compression
from protocol.records import HEADER_SIZE, PADDING, BadRecords, _walk_exactly, walk
from tests.fuzz.mutation import fuzzing, mutated
from tests.protocol.building import BASE_MS, NOW_MS, batch, record

RECORDS = [
    record(0),
    record(1, key=None, timestamp_delta=-5),
    record(2, value=None, headers=[(b"name", b"content"), (b"other", None)]),
    record(3, value=b"v" * 70, timestamp_delta=2000),
]
CODECS = (0, 1, 2, 3, 4)


def with_right_crc(data: bytes) -> bytes:
    """The length and CRC that make a batch of these bytes reach the checks behind them."""
    data = data.ljust(HEADER_SIZE, b"\x00")
    length = struct.pack(">i", len(data) - 12)
    return data[:8] + length + data[12:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def validate(data: bytes) -> None:
    frame = bytearray(data)
    try:
        accepted = validate_produce(
            memoryview(frame),
            api_version=9,
            timestamp_type="CreateTime",
            now_ms=NOW_MS,
            before_max_ms=2**63 - 1,
            after_max_ms=2**63 - 1,
            max_message_bytes=1_000_000,
            require_key=False,
            max_decompressed_bytes=1_000_000,
        )
    except InvalidBatch as refused:
        assert refused.message
        return
    assert accepted.size == len(accepted.view) <= len(data)
    assert accepted.record_count > 0
    [(at, header)] = iter_batches(accepted.view)
    assert (at, header.max_timestamp) == (0, accepted.max_timestamp_ms)
    latest = record_with_max_timestamp(accepted.view, max_decompressed_bytes=1_000_000)
    assert latest is not None
    assert max(latest.timestamp_ms, -1) == accepted.max_timestamp_ms


@pytest.mark.parametrize("codec", CODECS)
@fuzzing(200)
@given(data=st.data())
def test_batches_with_a_few_wrong_bytes(codec: int, data: st.DataObject) -> None:
    original = batch(RECORDS, codec=codec, max_timestamp=BASE_MS + 2000)
    changed = data.draw(mutated(original))
    validate(changed)
    validate(with_right_crc(changed))


@pytest.mark.parametrize("codec", CODECS)
@fuzzing(200)
@given(body=st.binary(max_size=60), count=st.integers(1, 5))
def test_bodies_of_any_bytes(codec: int, body: bytes, count: int) -> None:
    validate(batch(codec=codec, body=body, count=count, last_offset_delta=count - 1))
    # The same bytes as what comes out of the compression.
    if codec != Compression.NONE:
        validate(batch([body], codec=codec, count=count, last_offset_delta=count - 1))


def walked(data: bytes) -> list[int] | None:
    view = memoryview(data + PADDING)[: len(data)]
    try:
        return walk(view).timestamps_ms
    except BadRecords:
        return None


@fuzzing(500)
@given(st.data())
def test_the_compiled_walk_sees_what_the_exact_one_sees(data: st.DataObject) -> None:
    body = data.draw(mutated(b"".join(RECORDS), changes=2))
    candidate = batch(RECORDS, body=body)
    try:
        exact = _walk_exactly(memoryview(candidate), len(RECORDS), False).timestamps_ms
    except BadRecords:
        return
    assert walked(candidate) == exact


@fuzzing(100)
@given(st.data())
def test_what_is_left_after_a_cut_is_never_taken_for_whole(data: st.DataObject) -> None:
    body = b"".join(RECORDS)
    cut = data.draw(st.integers(0, len(body) - 1))
    assert walked(batch(RECORDS, body=body[:cut])) is None


def test_the_untouched_batch_is_read_by_an_independent_decoder() -> None:
    for codec in CODECS:
        original = batch(RECORDS, codec=codec)
        found = [(one.offset, one.timestamp) for one in _DefaultRecordBatchPy(original)]
        times = walked(batch(RECORDS)) or []
        assert found == list(enumerate(times))
