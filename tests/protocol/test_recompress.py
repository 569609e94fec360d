"""Batches packed anew: the same records and header in another codec."""

from __future__ import annotations

import pytest
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import HEADER_SIZE, AcceptedBatch, InvalidBatch, parse_header, validate_produce
from protocol.compression import Compression, compress
from protocol.errors import ErrorCode
from protocol.recompress import recompressed
from tests.protocol.building import BASE_MS, HOUR_MS, NOW_MS, batch, record

UNPACK = {
    Compression.NONE: bytes,
    Compression.GZIP: gzip_decode,
    Compression.SNAPPY: snappy_decode,
    Compression.LZ4: lz4_decode,
    Compression.ZSTD: zstd_decode,
}
LIMIT = 2**20


def accepted(data: bytes, max_message_bytes: int = LIMIT) -> AcceptedBatch:
    return validate_produce(
        memoryview(bytearray(data)),
        api_version=9,
        timestamp_type="CreateTime",
        now_ms=NOW_MS,
        before_max_ms=HOUR_MS,
        after_max_ms=HOUR_MS,
        max_message_bytes=max_message_bytes,
    )


@pytest.mark.parametrize("target", Compression)
@pytest.mark.parametrize("source", Compression)
@settings(max_examples=10, derandomize=True)
@given(values=st.lists(st.binary(max_size=70_000), min_size=1, max_size=4))
def test_the_same_records_in_any_codec(
    source: Compression, target: Compression, values: list[bytes]
) -> None:
    records = [record(index, value=value) for index, value in enumerate(values)]
    before = accepted(
        batch(records, codec=source, producer_id=7, producer_epoch=1, base_sequence=5)
    )
    after = recompressed(before, target, None, max_message_bytes=LIMIT)
    # A whole, valid batch, in which only codec, length and CRC are other than before.
    assert accepted(bytes(after.view)) == after
    header = parse_header(after.view)
    assert (header.compression, header.size) == (target, len(after.view))
    assert header._replace(batch_length=0, crc=0, attributes=0) == parse_header(
        before.view
    )._replace(batch_length=0, crc=0, attributes=0)
    # Unpacked by somebody else's code.
    assert UNPACK[target](bytes(after.view[HEADER_SIZE:])) == b"".join(records)


def test_a_batch_in_the_right_codec_is_left_alone() -> None:
    before = accepted(batch(codec=Compression.ZSTD))
    assert recompressed(before, Compression.ZSTD, 22, max_message_bytes=LIMIT) is before


def test_unpacking_may_make_it_too_large() -> None:
    before = accepted(batch([record(value=bytes(5000))], codec=Compression.GZIP), 1000)
    with pytest.raises(InvalidBatch) as refused:
        recompressed(before, Compression.NONE, None, max_message_bytes=1000)
    assert refused.value.code is ErrorCode.message_too_large


def test_the_time_of_the_log_stays() -> None:
    data = batch([record(value=bytes(100))], base_timestamp=BASE_MS)
    before = validate_produce(
        memoryview(bytearray(data)),
        api_version=9,
        timestamp_type="LogAppendTime",
        now_ms=NOW_MS,
        before_max_ms=0,
        after_max_ms=0,
        max_message_bytes=LIMIT,
    )
    header = parse_header(recompressed(before, Compression.LZ4, None, max_message_bytes=LIMIT).view)
    assert (header.timestamp_type, header.max_timestamp) == ("LogAppendTime", NOW_MS)


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, 1, 17), (Compression.ZSTD, -131072, 22)],
)
def test_the_level_counts(codec: Compression, low: int, high: int) -> None:
    words = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
    text = "".join(f"{words[n * n % 7]} {words[n % 8]} {n % 97}\n" for n in range(5000)).encode()
    sizes = [len(compress(codec, text, level)) for level in (low, high)]
    assert sizes[0] > sizes[1]
    assert UNPACK[codec](compress(codec, text, low)) == text
    assert UNPACK[codec](compress(codec, text, high)) == text


def test_the_default_level_of_gzip() -> None:
    assert compress(Compression.GZIP, bytes(500), -1) == compress(Compression.GZIP, bytes(500), 6)


def test_lz4_blocks_are_independent() -> None:
    """The flag in the frame's header without which Java's client refuses to read."""
    assert compress(Compression.LZ4, bytes(200_000))[4] & 0x20
