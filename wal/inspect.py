"""A WAL object as text for a person: `drayd admin wal inspect FILE`.

Nothing that the bytes hold makes it raise: of a broken object it prints what can be read, and
says in a sentence what is wrong and where. The output is bounded by `max_batches`, because the
index of a broken object may name the same bytes again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from crc32c import crc32c

from protocol.batch import BatchHeader, InvalidBatch, parse_header
from wal.format import (
    FOOTER_BYTES,
    MAGIC,
    VERSION,
    CorruptWal,
    IndexEntry,
    crc_matches,
    decode,
    iter_batches,
    read_header,
    scan_entries,
)
from wal.objectstore import Buffer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = (
    "position",
    "bytes",
    "records",
    "codec",
    "first timestamp",
    "last timestamp",
    "producer",
    "epoch",
    "sequence",
    "crc",
)
# Where the bytes begin that a record batch's own CRC covers: at its attributes.
_BATCH_CRC_FROM = 21


def describe(data: Buffer, max_batches: int = 10_000) -> str:
    """The object's header, chunks and batches, and whether it is intact."""
    return "\n".join(_lines(memoryview(data), max_batches)) + "\n"


def _lines(view: memoryview, max_batches: int) -> Iterator[str]:
    problem = _problem(view)
    try:
        header = read_header(view)
    except CorruptWal:
        yield f"no WAL object, {len(view):,} bytes"
        yield f"CORRUPT: {problem}."
        return
    entries = scan_entries(view)
    yield f"WAL object {header.wal_id}"
    yield f"  format       {MAGIC.decode()}, version {VERSION}"
    yield f"  created      {_time(header.created_at_ms)}"
    yield f"  meta domain  {header.meta_domain}"
    yield f"  size         {len(view):,} bytes"
    yield f"  crc32c       {_crc(view)}"
    yield (
        f"  content      {header.chunk_count:,} streams, "
        f"{sum(entry.batch_count for entry in entries):,} batches, "
        f"{sum(entry.record_count for entry in entries):,} records"
    )
    for entry in entries:
        yield ""
        if max_batches <= 0:
            yield "Further streams are left out."
            break
        yield (
            f"stream {entry.stream_id}: {entry.batch_count:,} batches, "
            f"{entry.record_count:,} records, {entry.length:,} bytes at {entry.offset}, "
            f"{_time(entry.min_timestamp_ms)} to {_time(entry.max_timestamp_ms)}"
        )
        rows, remark = _batches(view, entry, max_batches)
        max_batches -= len(rows)
        if rows:
            yield from _table([_COLUMNS, *rows])
        if remark:
            yield f"  {remark}"
    if problem is not None:
        yield ""
        yield f"CORRUPT: {problem}."


def _problem(view: memoryview) -> str | None:
    try:
        decode(view)
    except CorruptWal as error:
        return str(error)
    return None


def _crc(view: memoryview) -> str:
    stored = bytes(view[-FOOTER_BYTES:]).hex()
    if crc_matches(view):
        return f"ok ({stored})"
    return f"WRONG (stored {stored}, computed {crc32c(view[:-FOOTER_BYTES]):08x})"


def _batches(
    view: memoryview, entry: IndexEntry, limit: int
) -> tuple[list[Sequence[str]], str | None]:
    """A row for each batch of a chunk, and a sentence if that is not all there is to say."""
    rows: list[Sequence[str]] = []
    body = view[entry.offset : entry.offset + entry.length]
    try:
        for position, batch in iter_batches(body, entry.offset):
            if len(rows) == limit:
                return rows, "Further batches are left out."
            rows.append(_row(position, batch))
    except CorruptWal as error:
        return rows, f"then: {error}."
    if len(body) < entry.length:
        return rows, f"{entry.length - len(body):,} bytes of it lie past the end of the object."
    return rows, None


def _row(position: int, batch: memoryview) -> Sequence[str]:
    where = (str(position), f"{len(batch):,}")
    try:
        header = parse_header(batch)
    except InvalidBatch as error:
        return (*where, str(error))
    has_producer = header.producer_id >= 0
    return (
        *where,
        f"{header.record_count:,}",
        _codec(header),
        _time(header.base_timestamp),
        _time(header.max_timestamp),
        str(header.producer_id) if has_producer else "-",
        str(header.producer_epoch) if has_producer else "-",
        str(header.base_sequence) if has_producer else "-",
        "ok" if crc32c(batch[_BATCH_CRC_FROM:]) == header.crc else "WRONG",
    )


def _codec(header: BatchHeader) -> str:
    try:
        return header.compression.name.lower()
    except ValueError:
        return f"unknown {header.codec_id}"


def _time(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; a number that is no moment of this calendar stays a number."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    if timestamp_ms < 0:
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [0] * len(_COLUMNS)
    for row in rows:
        if len(row) == len(widths):
            widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  " + "  ".join(cells).rstrip()
