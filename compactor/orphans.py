"""Objects that were written and never committed, found by their staging markers.

A marker whose time is up is first fenced: written again, so that its version changes and no
commit that relies on it can succeed. From then on the records of its range are final. Objects
of the range that have neither record nor garbage entry are deleted. The fenced marker stays for
a second period, because a PUT may land late, then they are deleted again and the marker goes.
(`correctness` 18; where an object of the range was committed, only the marker goes.)

Time decides only when this happens; that nothing committed is deleted follows from the fence.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from compactor.deletes import delete_objects
from compactor.naming import named_ids, readable
from metadata import keys
from metadata.store import Check, Conflict, Delete, KeyValue, MetadataStore, Put
from metadata.streams import wal_id
from metadata.values import Marker, encode
from wal.objectstore import ObjectStore
from wal.paths import wal_path

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPolicy:
    ttl_ms: int
    """How long an object may stay uncommitted, and how long a fenced marker is kept."""
    settle_ms: int
    """From fencing to the first deletion."""
    range_life_ms: int
    """For how long a broker takes names from a range."""
    incarnation: str
    """Of this process."""
    sole_owner: bool
    """No other process can be alive on these stores, and no PUT outlives its process."""


class Step(Enum):
    WAIT = "too early"
    FENCE = "write the marker again"
    DELETE = "delete what wasn't committed, for the first time"
    REMOVE = "delete what wasn't committed, for the last time, and the marker"


def next_step(marker: Marker, now_ms: int, policy: OrphanPolicy) -> Step:
    dead = policy.sole_owner and marker.incarnation != policy.incarnation
    if not marker.fenced_ms:
        last_use_ms = marker.created_ms + policy.range_life_ms
        return Step.FENCE if dead or now_ms >= last_use_ms + policy.ttl_ms else Step.WAIT
    if dead or now_ms >= marker.fenced_ms + policy.ttl_ms:
        return Step.REMOVE
    return Step.DELETE if now_ms >= marker.fenced_ms + policy.settle_ms else Step.WAIT


class OrphansResult(NamedTuple):
    deleted: int
    """Objects that don't exist any more; that most of them never did can't be known."""
    removed: int
    """Markers."""
    left: int
    """Markers that are fenced."""


class _Seen(NamedTuple):
    key: str
    version: int
    marker: Marker


class OrphanCollector:
    """The staging markers of one domain."""

    def __init__(
        self, store: MetadataStore, objects: ObjectStore, domain: int, policy: OrphanPolicy
    ) -> None:
        self._store = store
        self._objects = objects
        self._domain = domain
        self._scope = keys.domain_scope(domain)
        self._policy = policy
        self._cleaned: set[tuple[str, int]] = set()
        """Key and version of fenced markers whose first deletion this process has done."""

    async def collect(self, now_ms: int) -> OrphansResult:
        deleted = removed = left = 0
        fenced: set[tuple[str, int]] = set()
        prefix = keys.staging(self._domain)
        async for item in self._store.scan(prefix, keys.end_of(prefix), scope=self._scope):
            seen = await self._fence_if_due(item, now_ms)
            if seen is None:
                continue
            gone, is_removed = await self._clean(seen, next_step(seen.marker, now_ms, self._policy))
            deleted += gone
            if is_removed:
                removed += 1
            else:
                left += 1
                fenced.add((seen.key, seen.version))
        self._cleaned &= fenced
        return OrphansResult(deleted, removed, left)

    async def _fence_if_due(self, item: KeyValue, now_ms: int) -> _Seen | None:
        """The marker, if it is fenced or could be."""
        marker = readable(Marker, item.key, item.value)
        if marker is None:
            return None
        if marker.fenced_ms:
            return _Seen(item.key, item.version, marker)
        if next_step(marker, now_ms, self._policy) is not Step.FENCE:
            return None
        marker = msgspec.structs.replace(marker, fenced_ms=now_ms)
        try:
            result = await self._store.commit(
                self._scope, [Check(item.key, item.version)], [Put(item.key, encode(marker))]
            )
        except Conflict:
            # Its broker removed it, or another collector fenced it. Look again next time.
            return None
        log.info(
            "fenced a staging marker of broker %d for %d objects in domain %d",
            marker.broker_id,
            marker.count,
            self._domain,
        )
        return _Seen(item.key, result.version, marker)

    async def _clean(self, seen: _Seen, step: Step) -> tuple[int, bool]:
        """(objects deleted, whether the marker is gone)."""
        if step is Step.WAIT or (step is Step.DELETE and (seen.key, seen.version) in self._cleaned):
            return 0, False
        paths = await self._uncommitted(seen.marker)
        gone = await delete_objects(self._objects, paths)
        if len(gone) < len(paths):
            return len(gone), False
        if paths and step is Step.DELETE:
            self._cleaned.add((seen.key, seen.version))
            return len(gone), False
        try:
            await self._store.commit(
                self._scope, [Check(seen.key, seen.version)], [Delete(seen.key)]
            )
        except Conflict:
            log.debug("the marker %s was removed by somebody else", seen.key)
        return len(gone), True

    async def _uncommitted(self, marker: Marker) -> list[str]:
        """Paths of the range that no commit has taken in. Final, since the marker is fenced."""
        ids = [wal_id(marker.base, number) for number in range(marker.count)]
        if not ids:
            return []
        named = await named_ids(self._store, self._domain, ids[0], ids[-1])
        try:
            return [
                wal_path(marker.zone, self._domain, marker.created_ms, each)
                for each in ids
                if each not in named
            ]
        except (ValueError, OverflowError) as error:
            # Then its broker couldn't make a path either, and has written nothing.
            log.warning("a staging marker of broker %d names no path: %s", marker.broker_id, error)
            return []
