"""Rows that were written or read lately, so that a hot ``get`` needs no thread and no disk.

Invariant: an entry is what the store holds as of the newest commit announced to this cache, which
hears of every commit, in order. A read that ran beside commits may only be kept if no newer write
of its key can have come and gone: the key is not here, and nothing newer than the read was
forgotten since.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from metadata.store import Versioned

_ENTRY_OVERHEAD_BYTES = 400
"""What an entry's objects weigh beside the bytes of key and value."""


class Known(NamedTuple):
    """What is known of a key; ``row`` None: it does not exist."""

    row: Versioned | None
    as_of: int
    size_bytes: int


class RecentRows:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self._newest_forgotten = 0

    def get(self, scope: str, key: str) -> Known | None:
        known = self._known.get((scope, key))
        if known is not None:
            self._known.move_to_end((scope, key))
        return known

    def written(self, scope: str, key: str, value: bytes | None, version: int) -> None:
        """A commit with this version wrote the key, or with None deleted it."""
        self._keep(scope, key, None if value is None else Versioned(value, version), version)

    def read(self, scope: str, key: str, row: Versioned | None, as_of: int) -> None:
        """A read that began when commit ``as_of`` was the last announced one found this."""
        if (scope, key) not in self._known and self._newest_forgotten <= as_of:
            self._keep(scope, key, row, as_of)

    def clear(self, as_of: int) -> None:
        """Forget all; commits up to ``as_of`` may have written anything."""
        self._known.clear()
        self._bytes = 0
        self._newest_forgotten = as_of

    def _keep(self, scope: str, key: str, row: Versioned | None, as_of: int) -> None:
        before = self._known.pop((scope, key), None)
        if before is not None:
            self._bytes -= before.size_bytes
        size_bytes = _ENTRY_OVERHEAD_BYTES + len(key) + (len(row.value) if row else 0)
        if size_bytes > self._max_bytes // 8:  # one large value must not push all others out
            self._newest_forgotten = max(self._newest_forgotten, as_of)
            return
        self._known[scope, key] = Known(row, as_of, size_bytes)
        self._bytes += size_bytes
        while self._bytes > self._max_bytes:
            _, forgotten = self._known.popitem(last=False)
            self._bytes -= forgotten.size_bytes
            self._newest_forgotten = max(self._newest_forgotten, forgotten.as_of)
