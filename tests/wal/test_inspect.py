"""The text for a person: it names what is in an object, and never breaks on a broken one."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.make_wal import FOLDER, GOLDEN, record_batch
from wal.format import ENTRY_BYTES, HEADER_BYTES, Chunk, encode
from wal.inspect import describe

WAL_ID = UUID("12345678-9abc-4def-8123-456789abcdef")
MANY_STREAMS = (FOLDER / "wal-many-streams.wo").read_bytes()


def described(*batches: bytes) -> str:
    encoded = encode(WAL_ID, 3, 1_735_786_245_678, [Chunk(9, batches, 5, -1, 2**62)])
    return describe(b"".join(encoded.parts))


def test_a_sound_object() -> None:
    text = describe(MANY_STREAMS)
    assert "WAL object 0193fffe-dcba-7000-8123-456789abcdef" in text
    assert "2025-01-02T02:50:45.678Z" in text
    assert "4 streams, 8 batches, 11 records" in text
    assert "crc32c       ok" in text
    assert "stream 3: 3 batches, 6 records, 243 bytes at 225" in text
    row = next(line.split() for line in text.splitlines() if " 4711 " in line)
    assert row[:4] == ["11030", "69", "1", "none"]
    assert row[-4:] == ["4711", "3", "2147483647", "ok"]
    assert "CORRUPT" not in text
    assert "WRONG" not in text


@pytest.mark.parametrize("codec", [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_codecs_have_names(codec: tuple[int, str]) -> None:
    batch = bytearray(record_batch(0, [b"x"]))
    struct.pack_into(">h", batch, 21, codec[0])
    text = described(bytes(batch))
    assert codec[1] in text
    assert "WRONG" in text  # the batch's own CRC covers its attributes


def test_oddities_stay_readable() -> None:
    batch = bytearray(record_batch(0, [b"x"]))
    struct.pack_into(">h", batch, 21, 7)
    text = described(bytes(batch), b"short")
    assert "unknown 7" in text
    assert "-1 ms to 4611686018427387904 ms" in text
    assert "a batch header in 5 bytes" in text
    assert "CORRUPT" not in text


def test_a_flipped_byte_is_said_and_the_rest_shown() -> None:
    broken = bytearray(MANY_STREAMS)
    broken[-10] ^= 1
    text = describe(broken)
    assert "crc32c       WRONG" in text
    assert "stream 3: 3 batches" in text
    assert text.splitlines()[-1].startswith("CORRUPT: ")


def test_a_truncated_object_is_shown_as_far_as_it_goes() -> None:
    text = describe(MANY_STREAMS[:1200])
    assert "stream 256: 3 batches" in text
    assert "then: batch at byte 631 has 10312 bytes" in text
    assert "73 bytes of it lie past the end" in text
    assert "CORRUPT: " in text


@pytest.mark.parametrize("data", [b"", b"DRAYWO", b"PAR1" + bytes(100)])
def test_what_is_no_wal_object(data: bytes) -> None:
    text = describe(data)
    assert text.startswith(f"no WAL object, {len(data)} bytes\nCORRUPT: ")


def test_an_index_that_repeats_itself_prints_a_bounded_text() -> None:
    body = struct.pack(">I", 0) * 1000
    bodies_at = HEADER_BYTES + 1000 * ENTRY_BYTES
    rows = [struct.pack(">QQIIIqq", 1, bodies_at, 4000, 0, 1000, 0, 0)] * 1000
    header = MANY_STREAMS[:37] + struct.pack(">IQ", 1000, HEADER_BYTES)
    text = describe(header + b"".join(rows) + body, max_batches=50)
    assert len(text.splitlines()) < 120
    assert "left out" in text


def test_nothing_is_said_to_be_left_out_when_nothing_is() -> None:
    assert "left out" not in describe(MANY_STREAMS, max_batches=8)
    assert "left out" in describe(MANY_STREAMS, max_batches=7)
    assert "left out" in describe(MANY_STREAMS, max_batches=2)


@given(st.binary(max_size=400), st.integers(0, 300))
def test_no_bytes_break_it(junk: bytes, at: int) -> None:
    for golden in (MANY_STREAMS, (FOLDER / "wal-one-stream.wo").read_bytes()):
        assert describe(golden[:at] + junk + golden[at + len(junk) :]).endswith("\n")


@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_object_is_sound(name: str) -> None:
    assert "CORRUPT" not in describe((FOLDER / name).read_bytes())
