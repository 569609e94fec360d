"""The DRAYWO1 codec: round trips, layout, copies, and each check of the decoder."""

from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from wal.format import (
    ENTRY_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    Chunk,
    CorruptWal,
    crc_matches,
    decode,
    encode,
    iter_batches,
    read_header,
    read_index,
    scan_entries,
)
from wal.objectstore import Buffer

WAL_ID = UUID("12345678-9abc-4def-8123-456789abcdef")

u32 = st.integers(0, 2**32 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
# Sizes on both sides of the one below which batches are joined.
batches = st.one_of(
    st.binary(max_size=200),
    st.integers(8_000, 8_400).map(lambda size: bytes(i % 251 for i in range(size))),
)
chunks = st.lists(
    st.builds(Chunk, st.integers(0, 2**64 - 1), st.lists(batches, max_size=8), u32, i64, i64),
    max_size=6,
    unique_by=lambda chunk: chunk.stream_id,
)


def plain(chunk: Chunk) -> tuple[object, ...]:
    return (chunk.stream_id, [bytes(batch) for batch in chunk.batches], *chunk[2:])


def an_object() -> bytes:
    return b"".join(
        encode(
            WAL_ID,
            3,
            1000,
            [Chunk(5, [b"aaaa", b"bb"], 2, 10, 20), Chunk(9, [b"cccccc"], 1, 30, 30)],
        ).parts
    )


def with_crc(data: bytes | bytearray) -> bytes:
    """The data with its footer made right, so that only the deeper checks can object."""
    body = bytes(data[:-FOOTER_BYTES])
    return body + struct.pack(">I", crc32c(body))


@given(st.uuids(), u32, i64, chunks)
def test_what_is_encoded_is_decoded(
    wal_id: UUID, meta_domain: int, created_at_ms: int, given_chunks: list[Chunk]
) -> None:
    encoded = encode(wal_id, meta_domain, created_at_ms, given_chunks)
    data = b"".join(encoded.parts)
    assert len(data) == encoded.size
    wal = decode(data)
    assert (wal.header.wal_id, wal.header.meta_domain) == (wal_id, meta_domain)
    assert wal.header.created_at_ms == created_at_ms
    ordered = sorted(given_chunks, key=lambda chunk: chunk.stream_id)
    assert [plain(chunk) for chunk in wal.chunks] == [plain(chunk) for chunk in ordered]


@given(chunks)
def test_chunks_are_placed_where_the_index_and_the_running_sum_say(
    given_chunks: list[Chunk],
) -> None:
    encoded = encode(WAL_ID, 0, 0, given_chunks)
    data = b"".join(encoded.parts)
    placed_by_stream = {entry.stream_id: (entry.offset, entry.length) for entry in read_index(data)}
    for chunk, placed in zip(given_chunks, encoded.chunks, strict=True):
        assert placed_by_stream[chunk.stream_id] == placed
        position = placed.offset
        for batch in chunk.batches:
            assert data[position : position + 4] == struct.pack(">I", len(batch))
            assert data[position + 4 : position + 4 + len(batch)] == batch
            position += 4 + len(batch)
        assert position == placed.offset + placed.length


@given(chunks, st.data())
def test_any_run_of_whole_batches_can_be_read_alone(
    given_chunks: list[Chunk], data: st.DataObject
) -> None:
    encoded = encode(WAL_ID, 0, 0, given_chunks)
    whole = b"".join(encoded.parts)
    for chunk, placed in zip(given_chunks, encoded.chunks, strict=True):
        positions = [placed.offset]
        for batch in chunk.batches:
            positions.append(positions[-1] + 4 + len(batch))
        first = data.draw(st.integers(0, len(chunk.batches)))
        end = data.draw(st.integers(first, len(chunk.batches)))
        view = memoryview(whole)[positions[first] : positions[end]]
        found = [(at, bytes(batch)) for at, batch in iter_batches(view, positions[first])]
        assert found == list(zip(positions[first:end], chunk.batches[first:end], strict=True))


def test_large_batches_are_not_copied() -> None:
    source = bytearray(3 * 1_000_000)
    views = [memoryview(source)[i * 1_000_000 : (i + 1) * 1_000_000] for i in range(3)]
    parts = encode(WAL_ID, 0, 0, [Chunk(1, views, 3, 0, 0)]).parts
    assert [part for part in parts if len(part) > 100] == views
    for view in views:
        assert any(part is view for part in parts)


def test_small_neighbours_become_one_part() -> None:
    tiny = [Chunk(stream, [b"x" * 150] * 100, 100, 0, 0) for stream in range(50)]
    assert len(encode(WAL_ID, 0, 0, tiny).parts) == 3  # header and index, bodies, footer


def test_views_of_every_kind_of_buffer_are_taken() -> None:
    content: list[Buffer] = [b"abc", bytearray(b"defg"), memoryview(b"xhix")[1:3]]
    data = b"".join(encode(WAL_ID, 0, 0, [Chunk(1, content, 3, 0, 0)]).parts)
    assert [bytes(batch) for batch in decode(bytearray(data)).chunks[0].batches] == content


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: encode(WAL_ID, 0, 0, [Chunk(7, [], 0, 0, 0)] * 2), "stream 7 has two"),
        (lambda: encode(WAL_ID, 0, 0, [Chunk(-1, [], 0, 0, 0)]), "stream -1"),
        (lambda: encode(WAL_ID, 0, 0, [Chunk(2**64, [], 0, 0, 0)]), str(2**64)),
        (lambda: encode(WAL_ID, 0, 0, [Chunk(7, [], 2**32, 0, 0)]), "stream 7"),
        (lambda: encode(WAL_ID, 0, 0, [Chunk(7, [], 0, 2**63, 0)]), "stream 7"),
        (lambda: encode(WAL_ID, 2**32, 0, []), str(WAL_ID)),
        (lambda: encode(WAL_ID, 0, 2**63, []), str(WAL_ID)),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], object], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()


def test_every_flipped_byte_is_noticed() -> None:
    data = an_object()
    decode(data)
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x40
        with pytest.raises(CorruptWal):
            decode(broken)


def test_every_truncation_and_every_extension_is_noticed() -> None:
    data = an_object()
    for size in range(len(data)):
        with pytest.raises(CorruptWal):
            decode(data[:size])
    with pytest.raises(CorruptWal):
        decode(data + b"\0")
    with pytest.raises(CorruptWal, match="4 bytes lie between"):
        decode(with_crc(data + b"\0\0\0\0"))


FIRST = HEADER_BYTES
SECOND = HEADER_BYTES + ENTRY_BYTES
BODIES = HEADER_BYTES + 2 * ENTRY_BYTES


@pytest.mark.parametrize(
    ("at", "field", "value", "names"),
    [
        (0, "7s", b"DRAYWO2", "magic"),
        (7, "H", 2, "version at byte 7 is 2"),
        (37, "I", 3, "bytes"),
        (37, "I", 1, "chunk 0"),
        (37, "I", 2**32 - 1, "4294967295 entries"),
        (41, "Q", 50, "index offset is 50"),
        (SECOND, "Q", 5, "chunk 1 .stream 5. does not come after stream 5"),
        (SECOND, "Q", 4, "chunk 1 .stream 4. does not come after stream 5"),
        (FIRST + 8, "Q", BODIES + 1, "chunk 0 .stream 5. starts at byte"),
        (SECOND + 8, "Q", BODIES, "chunk 1 .stream 9. starts at byte"),
        (SECOND + 8, "Q", 2**64 - 1, "chunk 1 .stream 9. starts at byte"),
        (SECOND + 16, "I", 11, "past the end"),
        (SECOND + 16, "I", 2**32 - 1, "past the end"),
        (SECOND + 16, "I", 9, "1 bytes lie between"),
        (FIRST + 24, "I", 1, "stream 5 holds 2 batches, but the index says 1"),
        (FIRST + 24, "I", 3, "stream 5 holds 2 batches, but the index says 3"),
        (FIRST + 24, "I", 2**32 - 1, "4294967295 batches in 14 bytes"),
        (BODIES, "I", 5, "stream 5"),
        (BODIES, "I", 2**32 - 1, f"batch at byte {BODIES} has 4294967295 bytes"),
        (BODIES, "I", 7, "are no batch length"),
        (BODIES, "I", 10, "stream 5 holds 1 batches"),
    ],
)
def test_each_check_of_the_decoder_speaks(at: int, field: str, value: object, names: str) -> None:
    broken = bytearray(an_object())
    struct.pack_into(f">{field}", broken, at, value)
    with pytest.raises(CorruptWal, match=names):
        decode(with_crc(broken))


def test_the_index_can_be_read_from_the_beginning_of_an_object() -> None:
    data = an_object()
    beginning = data[:BODIES]
    assert read_header(beginning) == decode(data).header
    assert read_index(beginning, object_size=len(data)) == decode(data).entries
    with pytest.raises(CorruptWal):
        read_index(beginning)
    with pytest.raises(CorruptWal):
        read_index(beginning[:-1], object_size=len(data))
    with pytest.raises(CorruptWal):
        read_index(beginning, object_size=len(data) + 1)


def test_scanning_entries_takes_what_is_there() -> None:
    data = an_object()
    assert scan_entries(data) == read_index(data)
    assert scan_entries(data[: SECOND + 3]) == read_index(data)[:1]
    assert scan_entries(data[:HEADER_BYTES]) == []


def test_a_crc_needs_four_bytes() -> None:
    assert not crc_matches(b"abc")
    assert crc_matches(struct.pack(">I", crc32c(b"")))


def test_batches_before_a_broken_one_are_yielded() -> None:
    run = struct.pack(">I", 2) + b"ab" + struct.pack(">I", 3) + b"cd"
    found = iter_batches(run, 100)
    position, batch = next(found)
    assert (position, bytes(batch)) == (100, b"ab")
    with pytest.raises(CorruptWal, match="batch at byte 106 has 3 bytes"):
        next(found)
