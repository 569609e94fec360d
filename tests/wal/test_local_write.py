"""Writing parts: all bytes in order, however they are cut and however little writev takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal import local_write
from wal.local_write import write_parts


@given(st.lists(st.binary(max_size=60), max_size=40), st.integers(1, 70), st.integers(1, 9))
def test_parts_arrive_in_order_under_short_writes(
    parts: list[bytes], step_bytes: int, max_vectors: int
) -> None:
    writev = os.writev

    def short_writev(fd: int, buffers: Sequence[memoryview]) -> int:
        assert 0 < len(buffers) <= max_vectors
        assert sum(map(len, buffers)) <= step_bytes
        return writev(fd, [b"".join(buffers)[: step_bytes // 2 + 1]])

    fd = os.memfd_create("parts")
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(local_write, "_STEP_BYTES", step_bytes)
            patched.setattr(local_write, "_MAX_VECTORS", max_vectors)
            patched.setattr(os, "writev", short_writev)
            write_parts(fd, parts)
        assert os.pread(fd, 10_000, 0) == b"".join(parts)
    finally:
        os.close(fd)


@pytest.mark.parametrize("sizes", [[5_000_000], [1] * 3000, [2_097_152] * 3, [2_097_153, 0, 7]])
def test_real_steps(tmp_path: Path, sizes: list[int]) -> None:
    parts = [os.urandom(size) for size in sizes]
    path = tmp_path / "file"
    with path.open("wb") as file:
        write_parts(file.fileno(), parts)
    assert path.read_bytes() == b"".join(parts)
