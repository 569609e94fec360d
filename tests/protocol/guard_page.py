"""Batches that end where readable memory ends.

`python -m tests.protocol.guard_page` validates batches whose last byte is followed by a page
that may not be read, so that any read past a batch ends the process with SIGSEGV. With the
argument `unguarded` the compiled codec is given the same memory directly, to show that it would.
"""

import ctypes
import mmap
import sys

from aiokafka.errors import CorruptRecordException
from aiokafka.record._crecords.default_records import DefaultRecordBatch

from protocol.batch import InvalidBatch, record_with_max_timestamp
from tests.protocol.building import batch

# A header count of one and nothing after it; varints that go on past the end.
BODIES = (b"\x0c\0\0\0\x01\x01\x02", b"\x80" * 7, b"\x0c\0\0\0\x01\x01\xff")


def before_a_guard_page(data: bytes) -> memoryview:
    """A copy of the bytes, the last of which is the last that may be read."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    no_access = 0
    libc = ctypes.CDLL(None, use_errno=True)
    guard = ctypes.c_void_p(start + mmap.PAGESIZE)
    if libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), no_access) != 0:
        sys.exit(f"mprotect: errno {ctypes.get_errno()}")
    view = memoryview(memory)[mmap.PAGESIZE - len(data) : mmap.PAGESIZE]
    view[:] = data
    return view


def main() -> None:
    for body in BODIES:
        view = before_a_guard_page(batch(body=body))
        try:
            if "unguarded" in sys.argv:
                list(DefaultRecordBatch(view))
            else:
                record_with_max_timestamp(view)
        except (InvalidBatch, CorruptRecordException):
            continue
        sys.exit(f"{body!r} was let through")


if __name__ == "__main__":
    main()
