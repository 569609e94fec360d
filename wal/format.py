"""DRAYWO1, the WAL object format (spec §5.2.2): a pure codec, everything big-endian.

    header   49 bytes: magic "DRAYWO1", version u16, wal id (16 bytes), meta domain u32,
             created at ms i64, chunk count u32, chunk index offset u64 (always 49)
    index    44 bytes a chunk, by ascending stream id: stream id u64, body offset u64,
             body length u32, record count u32, batch count u32, min and max timestamp ms i64
    bodies   in the order of the index, without gaps; each batch is a u32 length and its bytes
    footer   u32: CRC32C of everything before it

Where Ursa stores rows, this stores Kafka record batches as they came (§5.2.1): the base offset
is a patch at read time, and chunk boundaries are batch boundaries.

Invariants:
- `encode` copies no large batch: its parts are the caller's buffers, between small joined
  pieces, so the caller must leave them alone until the parts are written;
- `decode` accepts exactly what `encode` can make. Anything else raises `CorruptWal`, whatever
  the bytes are, and no allocation is larger than the input can account for;
- a byte range that starts at a length prefix and ends at a batch boundary can be read alone
  (`iter_batches`): that is what an index entry names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from wal.objectstore import Buffer

MAGIC = b"DRAYWO1"
VERSION = 1

_HEADER = struct.Struct(">7sH16sIqIQ")
_ENTRY = struct.Struct(">QQIIIqq")
_U32 = struct.Struct(">I")

HEADER_BYTES = _HEADER.size
ENTRY_BYTES = _ENTRY.size
FOOTER_BYTES = _U32.size
LENGTH_PREFIX_BYTES = _U32.size

# A batch shorter than this is copied into a block with its neighbours: thousands of tiny parts
# cost more, in Python and in writev, than one memcpy. Larger ones are passed on as they are.
_JOIN_BELOW_BYTES = 8 * 1024


class CorruptWal(Exception):
    """The bytes are no whole, intact DRAYWO1 object; the text says what is wrong and where."""


class Chunk(NamedTuple):
    """One stream's batches in an object that is about to be written."""

    stream_id: int
    batches: Sequence[Buffer]
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int


class Placed(NamedTuple):
    """Where a chunk body lies in its object, in bytes from the object's start.

    The first batch's length prefix is at `offset`; each next one 4 + len(batch) further.
    """

    offset: int
    length: int


class Encoded(NamedTuple):
    """An object ready to be put; `chunks` is in the order that `encode` was given."""

    parts: list[Buffer]
    size: int
    chunks: list[Placed]


class Header(NamedTuple):
    wal_id: UUID
    meta_domain: int
    created_at_ms: int
    chunk_count: int
    chunk_index_offset: int


class IndexEntry(NamedTuple):
    stream_id: int
    offset: int
    length: int
    record_count: int
    batch_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int


class WalObject(NamedTuple):
    """A decoded object. `chunks[i].batches` are views of the data, described by `entries[i]`."""

    header: Header
    entries: list[IndexEntry]
    chunks: list[Chunk]


def encode(wal_id: UUID, meta_domain: int, created_at_ms: int, chunks: Sequence[Chunk]) -> Encoded:
    """Lay the chunks out as one object; they may come in any order of stream ids.

    Batches are byte buffers (`len` is their size in bytes). A stream id that comes twice, or a
    number that its field cannot hold, raises ValueError: mistakes of the caller, found before a
    byte is written.
    """
    order = sorted(range(len(chunks)), key=lambda i: chunks[i].stream_id)
    placed = [Placed(0, 0)] * len(chunks)
    rows: list[bytes] = []
    bodies = _Parts()
    position = HEADER_BYTES + ENTRY_BYTES * len(chunks)
    previous = -1
    for i in order:
        chunk = chunks[i]
        if chunk.stream_id == previous:
            raise ValueError(f"stream {chunk.stream_id} has two chunks in one WAL object")
        previous = chunk.stream_id
        length = bodies.append(chunk.batches)
        try:
            row = _ENTRY.pack(
                chunk.stream_id,
                position,
                length,
                chunk.record_count,
                len(chunk.batches),
                chunk.min_timestamp_ms,
                chunk.max_timestamp_ms,
            )
        except struct.error as error:
            raise ValueError(f"chunk of stream {chunk.stream_id}: {error}") from error
        rows.append(row)
        placed[i] = Placed(position, length)
        position += length
    try:
        header = _HEADER.pack(
            MAGIC, VERSION, wal_id.bytes, meta_domain, created_at_ms, len(chunks), HEADER_BYTES
        )
    except struct.error as error:
        raise ValueError(f"header of WAL object {wal_id}: {error}") from error
    parts: list[Buffer] = [b"".join((header, *rows)), *bodies.finish()]
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    parts.append(_U32.pack(crc))
    return Encoded(parts, position + FOOTER_BYTES, placed)


class _Parts:
    """Collects batches with their length prefixes: small neighbours joined, large ones as is."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._small: list[Buffer] = []

    def append(self, batches: Sequence[Buffer]) -> int:
        """Add a chunk body and return its length in bytes."""
        lengths = list(map(len, batches))
        if not lengths:
            return 0
        if max(lengths) < _JOIN_BELOW_BYTES:
            # The hot case of many tiny batches: no Python code per batch.
            pieces: list[Buffer] = [b""] * (2 * len(lengths))
            pieces[0::2] = map(_U32.pack, lengths)
            pieces[1::2] = batches
            self._small += pieces
        else:
            for length, batch in zip(lengths, batches, strict=True):
                self._small.append(_U32.pack(length))
                if length < _JOIN_BELOW_BYTES:
                    self._small.append(batch)
                else:
                    self._join()
                    self._parts.append(batch)
        return sum(lengths) + LENGTH_PREFIX_BYTES * len(lengths)

    def finish(self) -> list[Buffer]:
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._small:
            self._parts.append(b"".join(self._small))
            self._small = []


def decode(data: Buffer) -> WalObject:
    """Check the whole object and return views of it; raises CorruptWal."""
    view = memoryview(data)
    header = read_header(view)
    if not crc_matches(view):
        raise CorruptWal(
            f"WAL object {header.wal_id}: the CRC32C of its {len(view)} bytes is wrong"
        )
    index = read_index(view)
    chunks = [_decode_chunk(view, entry) for entry in index]
    return WalObject(header, index, chunks)


def read_header(data: Buffer) -> Header:
    """Read the header from an object's first 49 bytes or more."""
    if len(data) < HEADER_BYTES:
        raise CorruptWal(f"a WAL object of {len(data)} bytes is shorter than its header")
    magic, version, wal_id, domain, created_at_ms, count, offset = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptWal(f"magic at byte 0 is {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise CorruptWal(f"version at byte 7 is {version}; this Dray reads version {VERSION}")
    if offset != HEADER_BYTES:
        raise CorruptWal(f"chunk index offset is {offset} instead of {HEADER_BYTES}")
    return Header(UUID(bytes=wal_id), domain, created_at_ms, count, offset)


def read_index(data: Buffer, object_size: int | None = None) -> list[IndexEntry]:
    """Read the chunk index from an object, or from its beginning if `object_size` is given.

    Checks that stream ids ascend and that the bodies fill the object from index to footer.
    """
    header = read_header(data)
    size = len(data) if object_size is None else object_size
    position = HEADER_BYTES + ENTRY_BYTES * header.chunk_count
    if position + FOOTER_BYTES > size or position > len(data):
        raise CorruptWal(
            f"chunk index of {header.chunk_count} entries ends at byte {position}, "
            f"but there are {min(size, len(data))} bytes with the footer"
        )
    index: list[IndexEntry] = []
    previous = -1
    for row, fields in enumerate(_ENTRY.iter_unpack(memoryview(data)[HEADER_BYTES:position])):
        entry = IndexEntry._make(fields)
        where = f"chunk {row} (stream {entry.stream_id})"
        if entry.stream_id <= previous:
            raise CorruptWal(f"{where} does not come after stream {previous}")
        if entry.offset != position:
            raise CorruptWal(f"{where} starts at byte {entry.offset} instead of {position}")
        if entry.length < LENGTH_PREFIX_BYTES * entry.batch_count:
            raise CorruptWal(f"{where}: {entry.batch_count} batches in {entry.length} bytes")
        previous = entry.stream_id
        position += entry.length
        if position + FOOTER_BYTES > size:
            raise CorruptWal(f"{where} ends at byte {position}, past the end of {size} bytes")
        index.append(entry)
    if position + FOOTER_BYTES != size:
        raise CorruptWal(f"{size - FOOTER_BYTES - position} bytes lie between bodies and footer")
    return index


def scan_entries(data: Buffer) -> list[IndexEntry]:
    """The index entries that the bytes hold, unchecked: for looking into a broken object."""
    end = HEADER_BYTES + ENTRY_BYTES * read_header(data).chunk_count
    rows = memoryview(data)[HEADER_BYTES:end]
    whole = len(rows) - len(rows) % ENTRY_BYTES
    return [IndexEntry._make(fields) for fields in _ENTRY.iter_unpack(rows[:whole])]


def crc_matches(data: Buffer) -> bool:
    """Whether the footer is the CRC32C of everything before it."""
    body_end = len(data) - FOOTER_BYTES
    if body_end < 0:
        return False
    (stored,) = _U32.unpack_from(data, body_end)
    return bool(crc32c(memoryview(data)[:body_end]) == stored)


def iter_batches(data: Buffer, position: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Yield (position of the length prefix, batch) for each batch of a byte range.

    The range starts at a length prefix and ends with a batch; `position` is where it starts in
    the object, so that what is yielded are positions in the object. CorruptWal is raised at the
    first batch that does not fit, after those before it were yielded.
    """
    view = memoryview(data)
    end = len(view)
    unpack = _U32.unpack_from
    at = 0
    while at < end:
        start = at + LENGTH_PREFIX_BYTES
        if start > end:
            raise CorruptWal(f"{end - at} bytes at byte {position + at} are no batch length")
        batch_end = start + unpack(view, at)[0]
        if batch_end > end:
            raise CorruptWal(
                f"batch at byte {position + at} has {batch_end - start} bytes, "
                f"but its range ends after {end - start}"
            )
        yield position + at, view[start:batch_end]
        at = batch_end


def _decode_chunk(view: memoryview, entry: IndexEntry) -> Chunk:
    body = view[entry.offset : entry.offset + entry.length]
    try:
        batches = [batch for _, batch in iter_batches(body, entry.offset)]
    except CorruptWal as error:
        raise CorruptWal(f"chunk of stream {entry.stream_id}: {error}") from error
    if len(batches) != entry.batch_count:
        raise CorruptWal(
            f"chunk of stream {entry.stream_id} holds {len(batches)} batches, "
            f"but the index says {entry.batch_count}"
        )
    return Chunk(
        entry.stream_id,
        batches,
        entry.record_count,
        entry.min_timestamp_ms,
        entry.max_timestamp_ms,
    )
