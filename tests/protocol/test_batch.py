"""Headers, patching, and finding records by time."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import (
    HEADER_SIZE,
    BatchHeader,
    InvalidBatch,
    RecordTime,
    first_record_at_or_after,
    iter_batches,
    parse_header,
    patch,
    record_with_max_timestamp,
)
from protocol.compression import Compression
from protocol.errors import ErrorCode
from tests.protocol.building import BASE_MS, batch, record, records


def test_header() -> None:
    data = batch(
        records(3),
        codec=4,
        leader_epoch=6,
        attributes=0x78,
        producer_id=11,
        producer_epoch=12,
        base_sequence=13,
        max_timestamp=BASE_MS + 1,
        base_offset=40,
    )
    header = parse_header(b"??" + data, 2)
    assert header == BatchHeader(
        base_offset=40,
        batch_length=len(data) - 12,
        partition_leader_epoch=6,
        magic=2,
        crc=crc32c(data[21:]),
        attributes=0x7C,
        last_offset_delta=2,
        base_timestamp=BASE_MS,
        max_timestamp=BASE_MS + 1,
        producer_id=11,
        producer_epoch=12,
        base_sequence=13,
        record_count=3,
    )
    assert header.size == len(data)
    assert header.end_offset == 43
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type == "LogAppendTime"
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (True,) * 3
    plain = parse_header(batch())
    assert (plain.is_transactional, plain.is_control, plain.has_delete_horizon) == (False,) * 3
    assert plain.timestamp_type == "CreateTime"


def test_a_header_that_is_cut_off() -> None:
    for size in range(HEADER_SIZE):
        with pytest.raises(InvalidBatch) as raised:
            parse_header(batch()[:size])
        assert raised.value.code is ErrorCode.corrupt_message


def test_a_run_of_batches() -> None:
    sizes = [len(batch(records(count))) for count in (1, 2, 3)]
    run = b"".join(batch(records(count)) for count in (1, 2, 3))
    found = list(iter_batches(run))
    assert [at for at, _ in found] == [0, sizes[0], sizes[0] + sizes[1]]
    assert [header.record_count for _, header in found] == [1, 2, 3]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("bad", (batch()[:-1], batch(length=5), batch(length=-12), b"x"))
def test_a_run_that_is_not_whole(bad: bytes) -> None:
    with pytest.raises(InvalidBatch):
        list(iter_batches(batch() + bad))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_patching_leaves_the_crc_right(base_offset: int, leader_epoch: int) -> None:
    data = batch(records(2))
    target = bytearray(b"before" + data)
    patch(target, 6, base_offset, leader_epoch)
    header = parse_header(target, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, leader_epoch)
    assert target[:6] == b"before"
    assert target[6 + 8 : 6 + 12] == data[8:12]
    assert target[6 + 16 :] == data[16:]
    assert DefaultRecordBatch(bytes(target[6:])).validate_crc()


@pytest.mark.parametrize("codec", (0, 1, 2, 3, 4))
def test_records_by_time(codec: int) -> None:
    deltas = (5, 3, 9, 9, 7)
    timed = [record(index, timestamp_delta=delta) for index, delta in enumerate(deltas)]
    data = batch(timed, codec=codec, base_offset=1000)
    for wanted, found in ((0, (0, 5)), (5, (0, 5)), (6, (2, 9)), (9, (2, 9))):
        expected = RecordTime(found[0], BASE_MS + found[1])
        assert first_record_at_or_after(data, BASE_MS + wanted) == expected
    assert first_record_at_or_after(data, BASE_MS + 10) is None
    assert record_with_max_timestamp(data) == RecordTime(2, BASE_MS + 9)


def test_records_by_time_in_a_batch_with_log_append_time() -> None:
    data = batch(records(3), attributes=8, max_timestamp=BASE_MS + 50)
    assert first_record_at_or_after(data, BASE_MS + 50) == RecordTime(0, BASE_MS + 50)
    assert record_with_max_timestamp(data) == RecordTime(0, BASE_MS + 50)


def test_stored_batches_are_checked_too() -> None:
    for bad in (batch(crc=1), batch(count=5), batch(codec=2, body=b"??"), batch()[:-2]):
        with pytest.raises(InvalidBatch):
            record_with_max_timestamp(bad)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40),
            st.none() | st.binary(max_size=100),
            st.none() | st.binary(max_size=100),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from((0, 1, 2, 3, 4)),
)
def test_batches_of_another_implementation(
    contents: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: int,
) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**30)
    for index, (delta, key, value, headers) in enumerate(contents):
        builder.append(index, BASE_MS + delta, key, value, headers)
    latest = record_with_max_timestamp(builder.build())
    times = [BASE_MS + delta for delta, *_ in contents]
    assert latest == RecordTime(times.index(max(times)), max(times))


@pytest.mark.parametrize("argument", ("guarded", "unguarded"))
def test_nothing_past_a_batch_is_read(argument: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.protocol.guard_page", argument],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    expected = -signal.SIGSEGV if argument == "unguarded" else 0
    assert run.returncode == expected, run.stderr
