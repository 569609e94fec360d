"""Broken WAL objects: the decoder says CorruptWal or returns what it checked, nothing else.

Mutations start from real objects. Half of them get a right CRC afterwards, so that the checks
behind it are reached; without that, the CRC stops nearly everything.
"""

from __future__ import annotations

import struct
import tracemalloc

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.make_wal import FOLDER, GOLDEN
from wal.format import (
    FOOTER_BYTES,
    Chunk,
    CorruptWal,
    decode,
    encode,
    iter_batches,
    read_index,
    scan_entries,
)

SEEDS = [(FOLDER / name).read_bytes()[:2000] for name in GOLDEN]
SEEDS += [
    b"".join(
        encode(golden.wal_id, golden.meta_domain, 0, [Chunk(*s) for s in golden.streams[1:2]]).parts
    )
    for golden in GOLDEN.values()
]

numbers = st.sampled_from([0, 1, 3, 4, 43, 44, 48, 49, 50, 2**31 - 1, 2**31, 2**32 - 1])
overwrite = st.tuples(st.just("overwrite"), st.integers(0, 400), st.binary(max_size=8))
number = st.tuples(
    st.just("overwrite"), st.integers(0, 400), numbers.map(lambda n: struct.pack(">I", n))
)
insert = st.tuples(st.just("insert"), st.integers(0, 400), st.binary(max_size=50))
remove = st.tuples(st.just("remove"), st.integers(0, 400), st.binary(max_size=50))
mutations = st.lists(st.one_of(overwrite, number, number, insert, remove), max_size=4)


def mutated(data: bytes, changes: list[tuple[str, int, bytes]], fix_crc: bool) -> bytes:
    for kind, at, content in changes:
        start = 0 if kind == "insert" else len(content)
        data = data[:at] + (b"" if kind == "remove" else content) + data[at + start :]
    if fix_crc and len(data) > FOOTER_BYTES:
        body = data[:-FOOTER_BYTES]
        data = body + struct.pack(">I", crc32c(body))
    return data


@settings(max_examples=2000)
@given(st.sampled_from(SEEDS), mutations, st.booleans())
def test_a_mutated_object_is_refused_or_is_what_it_says(
    seed: bytes, changes: list[tuple[str, int, bytes]], fix_crc: bool
) -> None:
    data = mutated(seed, changes, fix_crc)
    try:
        wal = decode(data)
    except CorruptWal as error:
        assert str(error)
        return
    # What is accepted is exactly what encoding it again gives.
    again = encode(wal.header.wal_id, wal.header.meta_domain, wal.header.created_at_ms, wal.chunks)
    assert b"".join(again.parts) == data


@settings(max_examples=500)
@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    for read in (decode, read_index, scan_entries, lambda view: list(iter_batches(view))):
        try:
            read(data)
        except CorruptWal as error:
            assert str(error)


def test_huge_counts_allocate_nothing() -> None:
    """Every 32-bit number set to its largest value: memory stays in proportion to the input."""
    seed = SEEDS[2]
    tracemalloc.start()
    try:
        for at in range(len(seed) - 4):
            data = mutated(seed, [("overwrite", at, b"\xff\xff\xff\xff")], True)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                decode(data)
            except CorruptWal:
                pass
            assert tracemalloc.get_traced_memory()[1] - before < 200_000
    finally:
        tracemalloc.stop()
