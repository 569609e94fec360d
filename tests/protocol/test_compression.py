"""Each codec both ways, and the cap on what comes out."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.compression import Compression, CorruptCompression, TooLarge, decompress
from tests.protocol.bomb import zstd_bomb
from tests.protocol.building import compressed

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b"line %d of a text that compresses well\n" % number for number in range(20_000))


def unpacked(codec: Compression, data: bytes, max_bytes: int = 2**24) -> bytes:
    output, size = decompress(codec, data, max_bytes)
    return bytes(output[:size])


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.binary(min_size=1, max_size=2000))
def test_what_is_compressed_comes_back(codec: Compression, data: bytes) -> None:
    assert unpacked(codec, compressed(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_first_guess(codec: Compression) -> None:
    # Far beyond eight times the compressed size: the buffer has to grow.
    data = bytes(3_000_000)
    assert unpacked(codec, compressed(codec, data)) == data


@pytest.mark.parametrize(
    ("codec", "encoded"),
    (
        (Compression.GZIP, gzip_encode(TEXT)),
        (Compression.SNAPPY, snappy_encode(TEXT)),
        # librdkafka's form: one block without any framing.
        (Compression.SNAPPY, snappy_encode(TEXT, xerial_compatible=False)),
        (Compression.LZ4, lz4_encode(TEXT)),
        (Compression.ZSTD, zstd_encode(TEXT)),
    ),
)
def test_what_other_implementations_write(codec: Compression, encoded: bytes) -> None:
    assert unpacked(codec, encoded) == TEXT


def test_room_before_and_after() -> None:
    for codec in CODECS:
        output, size = decompress(codec, compressed(codec, TEXT), 2**24, before=61, after=32)
        assert size == len(TEXT)
        assert output[:61] == bytes(61)
        assert output[61 : 61 + size] == TEXT
        assert len(output) >= 61 + size + 32
        assert output[61 + size : 61 + size + 32] == bytes(32)


@pytest.mark.parametrize("codec", CODECS)
def test_the_cap_is_exact(codec: Compression) -> None:
    encoded = compressed(codec, TEXT)
    assert unpacked(codec, encoded, len(TEXT)) == TEXT
    with pytest.raises(TooLarge):
        decompress(codec, encoded, len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.binary(max_size=200), cut=st.integers(0, 300))
def test_garbage_is_refused_or_bounded(codec: Compression, data: bytes, cut: int) -> None:
    for candidate in (data, compressed(codec, TEXT[:2000])[:cut] + data):
        try:
            _, size = decompress(codec, candidate, 10_000)
        except (CorruptCompression, TooLarge):
            continue
        assert size <= 10_000


def test_xerial_blocks_beyond_the_stream() -> None:
    magic = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for tail in (b"\x00\x00", struct.pack(">i", 5) + b"abc", struct.pack(">i", -1) + b"abc"):
        with pytest.raises(CorruptCompression):
            decompress(Compression.SNAPPY, magic + tail, 1000)
    with pytest.raises(CorruptCompression):
        decompress(Compression.SNAPPY, magic[:10], 1000)


def test_the_bomb_is_a_frame() -> None:
    assert unpacked(Compression.ZSTD, zstd_bomb(3)) == b"x" * (3 * 128 * 1024)


def test_a_bomb_takes_no_more_than_the_cap() -> None:
    # In a process of its own, so that the peak is that of the bomb: 16 kB for 512 MB.
    assert len(zstd_bomb(4096)) < 16_400
    run = subprocess.run(
        [sys.executable, "-m", "tests.protocol.bomb"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    grown_kib = int(run.stdout)
    assert grown_kib < 64 * 1024
