"""Objects that nothing refers to: the object goes after its grace, then its garbage entry.

Invariants:
- an object that has a record is never deleted, whatever its garbage entry says;
- a garbage entry outlives its object while the staging marker is open. It is the witness by
  which a broker that doesn't know the outcome of its commit learns that it happened; without it
  the same object would be committed again, after its bytes are gone.
"""

from __future__ import annotations

import logging
from typing import NamedTuple
from uuid import UUID

from compactor.deletes import delete_objects
from compactor.naming import marker_is_open, range_of, readable
from metadata import keys
from metadata.store import Check, Conflict, Delete, MetadataStore
from metadata.values import Garbage
from wal.objectstore import ObjectStore

log = logging.getLogger(__name__)

PIECE = 32


class _Entry(NamedTuple):
    key: str
    version: int
    path: str


class GarbageResult(NamedTuple):
    deleted: int
    pending: int
    """Entries whose object still exists."""


class GarbageCollector:
    """The garbage of one domain."""

    def __init__(self, store: MetadataStore, objects: ObjectStore, domain: int) -> None:
        self._store = store
        self._objects = objects
        self._domain = domain
        self._scope = keys.domain_scope(domain)
        self._witnesses: set[_Entry] = set()
        """Entries whose object this process has deleted and whose marker was open."""

    async def collect(self, now_ms: int) -> GarbageResult:
        deleted = pending = 0
        piece: list[_Entry] = []
        seen: set[_Entry] = set()
        stopped = False
        prefix = keys.garbage(self._domain)
        async for item in self._store.scan(prefix, keys.end_of(prefix), scope=self._scope):
            garbage = readable(Garbage, item.key, item.value)
            if garbage is None or garbage.delete_after_ms > now_ms:
                pending += 1
                continue
            entry = _Entry(item.key, item.version, garbage.path)
            seen.add(entry)
            if stopped:
                pending += entry not in self._witnesses
                continue
            piece.append(entry)
            if len(piece) == PIECE:
                result = await self._collect_piece(piece)
                deleted, pending = deleted + result.deleted, pending + result.pending
                # Nothing could be deleted: the store is down, and the rest is only counted.
                stopped = result.pending == PIECE
                piece = []
        if piece:
            result = await self._collect_piece(piece)
            deleted, pending = deleted + result.deleted, pending + result.pending
        self._witnesses &= seen
        return GarbageResult(deleted, pending)

    async def _collect_piece(self, piece: list[_Entry]) -> GarbageResult:
        waiting = [
            entry
            for entry in piece
            if entry not in self._witnesses and not await self._has_record(entry)
        ]
        gone_paths = await delete_objects(self._objects, [entry.path for entry in waiting])
        gone = [entry for entry in waiting if entry.path in gone_paths]
        done = [entry for entry in piece if entry in self._witnesses] + gone
        await self._remove(done)
        return GarbageResult(len(gone), len(piece) - len(done))

    async def _has_record(self, entry: _Entry) -> bool:
        wal_id = keys.wal_id_of(entry.key)
        key = keys.wal_object(self._domain, wal_id)
        if await self._store.get(key, scope=self._scope) is None:
            return False
        log.error("%s is garbage and has a record too; it stays. Please report this.", entry.path)
        return True

    async def _remove(self, entries: list[_Entry]) -> None:
        removable = []
        is_open: dict[UUID, bool] = {}
        for entry in entries:
            wal_id = keys.wal_id_of(entry.key)
            base = range_of(wal_id)
            if base not in is_open:
                is_open[base] = await marker_is_open(self._store, self._domain, wal_id)
            if is_open[base]:
                self._witnesses.add(entry)
            else:
                removable.append(entry)
        if not removable:
            return
        checks = [Check(entry.key, entry.version) for entry in removable]
        try:
            await self._store.commit(
                self._scope, checks, [Delete(entry.key) for entry in removable]
            )
        except Conflict:
            # Another collector was here; what is left comes up again in the next round.
            log.debug("garbage entries were removed by somebody else")
