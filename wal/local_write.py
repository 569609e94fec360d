"""Writing the parts of an object into a file descriptor, and getting them onto the disk.

Large objects are written in steps, and after each the kernel is asked to begin writing that
step out (sync_file_range), so that the disk works while the rest is copied: an 8 MiB object is
durable a third sooner. That call is a hint without any promise; the promise is `sync_data`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator, Sequence

from wal.objectstore import Buffer

_STEP_BYTES = 2 * 1024 * 1024
_MAX_VECTORS = 1024
_SYNC_FILE_RANGE_WRITE = 2

# Syncs the data and what is needed to read it back; not on every Unix.
sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)

# A flag of one write, that it is to be synced as by `sync_data`; newer than writev.
_RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_SMALL_BYTES = 256 * 1024


def write_durably(fd: int, parts: Sequence[Buffer]) -> None:
    """Write all parts at the start of an empty file; they are on the disk at the return."""
    if not _write_at_once(fd, parts):
        write_parts(fd, parts)
        sync_data(fd)


def _write_at_once(fd: int, parts: Sequence[Buffer]) -> bool:
    """Write and sync a small object in one call, if that can be done.

    Every system call of a thread ends with its wait for the interpreter, so one call less is one
    wait less.
    """
    global _RWF_DSYNC
    if not _RWF_DSYNC or len(parts) > _MAX_VECTORS:
        return False
    size = sum(map(len, parts))
    if not 0 < size <= _SMALL_BYTES:
        return False
    try:
        return os.pwritev(fd, parts, 0, _RWF_DSYNC) == size
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        _RWF_DSYNC = 0
        return False


def write_parts(fd: int, parts: Sequence[Buffer]) -> None:
    """Write all parts in order at the start of an empty file."""
    position = 0
    begun = 0
    for vectors in _steps(parts):
        position += _write_all(fd, vectors)
        if _begin_writeback is not None and position - begun >= _STEP_BYTES:
            _begin_writeback(fd, begun, position - begun, _SYNC_FILE_RANGE_WRITE)
            begun = position


def drop_cached(fd: int) -> None:
    """Give up the page cache of a large, synced file; small ones are cheap to keep."""
    if os.fstat(fd).st_size >= _STEP_BYTES:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _steps(parts: Sequence[Buffer]) -> Iterator[list[memoryview]]:
    """The parts in lists of at most _STEP_BYTES and as many vectors as writev takes."""
    vectors: list[memoryview] = []
    room = _STEP_BYTES
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view) > room or len(vectors) == _MAX_VECTORS:
            if len(vectors) < _MAX_VECTORS:
                vectors.append(view[:room])
                view = view[room:]
            yield vectors
            vectors = []
            room = _STEP_BYTES
        if len(view):
            vectors.append(view)
            room -= len(view)
    if vectors:
        yield vectors


def _write_all(fd: int, vectors: list[memoryview]) -> int:
    total = sum(map(len, vectors))
    left = total
    while left:
        count = os.writev(fd, vectors)
        left -= count
        if left:
            vectors = _after(vectors, count)
    return total


def _after(vectors: list[memoryview], count: int) -> list[memoryview]:
    """What is left of the vectors after their first `count` bytes."""
    for i, view in enumerate(vectors):
        if count < len(view):
            return [view[count:], *vectors[i + 1 :]]
        count -= len(view)
    return []


def _load_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None  # only Linux has it
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function.restype = ctypes.c_int
    typed: Callable[[int, int, int, int], int] = function
    return typed


_begin_writeback = _load_sync_file_range()
