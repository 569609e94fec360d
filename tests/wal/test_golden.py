"""Today's codec against the objects that were checked in (`tests/golden/make_wal.py`)."""

from __future__ import annotations

import pytest

from protocol.batch import parse_header
from tests.golden.make_wal import FOLDER, GOLDEN
from wal.format import Chunk, Encoded, decode, encode


def encoded(name: str) -> Encoded:
    golden = GOLDEN[name]
    chunks = [Chunk(*stream) for stream in golden.streams]
    return encode(golden.wal_id, golden.meta_domain, golden.created_at_ms, chunks)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_encoder_writes_the_golden_bytes(name: str) -> None:
    assert b"".join(encoded(name).parts) == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_decoder_reads_the_golden_bytes(name: str) -> None:
    golden = GOLDEN[name]
    wal = decode((FOLDER / name).read_bytes())
    assert wal.header.wal_id == golden.wal_id
    assert wal.header.meta_domain == golden.meta_domain
    assert wal.header.created_at_ms == golden.created_at_ms
    assert [(c.stream_id, [bytes(b) for b in c.batches], *c[2:]) for c in wal.chunks] == [
        tuple(stream) for stream in sorted(golden.streams)
    ]


def test_the_batches_inside_are_record_batches() -> None:
    wal = decode((FOLDER / "wal-many-streams.wo").read_bytes())
    for chunk in wal.chunks:
        headers = [parse_header(batch) for batch in chunk.batches]
        assert sum(header.record_count for header in headers) == chunk.record_count
        assert [h.size for h in headers] == [len(batch) for batch in chunk.batches]


def test_no_golden_file_is_forgotten() -> None:
    assert {path.name for path in FOLDER.glob("*.wo")} == set(GOLDEN)
