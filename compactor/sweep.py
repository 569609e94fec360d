"""The slow search for objects that nothing names: it lists the store and asks the metadata.

Such objects are rare: a PUT that landed after its marker was removed, or a deletion that power
loss undid. The sweep deletes nothing itself. It gives the object a garbage entry, in a
transaction that requires that neither marker, record nor garbage entry exists, and the collector
of garbage does the rest after the usual grace. So a wrong answer of a listing or of a read can't
cost a live object.

Against sweeping somebody else's objects every cluster leaves its stamp in the object store, and
a store with stamps of two clusters (shared by mistake, or left over from a metadata store that
was lost) is never swept.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import NamedTuple
from uuid import UUID

from compactor.naming import marker_of, named_ids, range_of
from metadata import keys
from metadata.store import Check, Conflict, MetadataStore, Put
from metadata.values import Garbage, encode
from wal.objectstore import AlreadyExists, ObjectStore
from wal.paths import WAL_PREFIX, parse_wal_path

log = logging.getLogger(__name__)

STAMPS = "dray/v1/clusters"
GROUP = 256
MAX_NAMED = 10_000
"""Objects that one sweep gives garbage entries to; the rest is for the next one."""
RECHECK_EVERY = 64
"""Objects after which the stamps are read again: another cluster may have begun."""


class Unnamed(NamedTuple):
    path: str
    size: int
    modified_ms: int
    domain: int
    wal_id: UUID


class SweepResult(NamedTuple):
    named: int
    """Objects that were given a garbage entry."""
    foreign: tuple[str, ...]
    """Other clusters that use the store: nothing is swept beside them."""


async def leave_stamp(objects: ObjectStore, cluster_id: str) -> None:
    """Must happen before a cluster has objects that are older than the orphan TTL."""
    try:
        await objects.put(f"{STAMPS}/{cluster_id}", [cluster_id.encode()])
    except AlreadyExists:
        return


async def foreign_stamps(objects: ObjectStore, cluster_id: str) -> tuple[str, ...]:
    stamps = [info.path.rpartition("/")[2] async for info in objects.list(STAMPS)]
    return tuple(stamp for stamp in stamps if stamp != cluster_id)


async def unnamed_objects(
    store: MetadataStore, objects: ObjectStore, *, domains: int, modified_before_ms: int
) -> AsyncIterator[Unnamed]:
    """Objects under the WAL's prefix that no marker, record or garbage entry names.

    Changes nothing and needs only reads. What isn't a WAL path, or is of a domain that doesn't
    exist, is left out."""
    group: list[Unnamed] = []
    async for info in objects.list(WAL_PREFIX):
        parsed = parse_wal_path(info.path)
        if parsed is None or parsed.meta_domain >= domains:
            log.debug("%s is not one of our WAL objects", info.path)
            continue
        if info.modified_ms >= modified_before_ms:
            continue
        found = Unnamed(*info, parsed.meta_domain, parsed.wal_id)
        if group and (len(group) == GROUP or not _together(group[0], found)):
            for unnamed in await _without_name(store, group):
                yield unnamed
            group = []
        group.append(found)
    for unnamed in await _without_name(store, group):
        yield unnamed


def _together(one: Unnamed, other: Unnamed) -> bool:
    """Whether the two are of one range: those lie side by side in a listing."""
    return one.domain == other.domain and range_of(one.wal_id) == range_of(other.wal_id)


async def _without_name(store: MetadataStore, group: list[Unnamed]) -> list[Unnamed]:
    if not group:
        return []
    domain = group[0].domain
    marker = marker_of(domain, group[0].wal_id)
    # An existing marker, fenced or not, is for the collector of orphans. The order of the
    # questions is that of `compactor.naming`.
    if await store.get(marker, scope=keys.domain_scope(domain)) is not None:
        return []
    ids = [found.wal_id for found in group]
    named = await named_ids(store, domain, min(ids), max(ids))
    return [found for found in group if found.wal_id not in named]


async def sweep(
    store: MetadataStore,
    objects: ObjectStore,
    *,
    cluster_id: str,
    domains: int,
    now_ms: int,
    ttl_ms: int,
    grace_ms: int,
) -> SweepResult:
    """Gives garbage entries to unnamed objects that were written before the TTL."""
    named = 0
    examined = 0
    async for unnamed in unnamed_objects(
        store, objects, domains=domains, modified_before_ms=now_ms - ttl_ms
    ):
        if examined % RECHECK_EVERY == 0:
            foreign = await foreign_stamps(objects, cluster_id)
            if foreign:
                log.warning(
                    "objects that nothing names are left alone: the object store is also used by "
                    "the clusters %s",
                    ", ".join(foreign),
                )
                return SweepResult(named, foreign)
        examined += 1
        if await _name(store, unnamed, now_ms + grace_ms):
            named += 1
            log.info("nothing names %s (%d bytes): it is garbage", unnamed.path, unnamed.size)
        if named == MAX_NAMED:
            break
    return SweepResult(named, ())


async def _name(store: MetadataStore, unnamed: Unnamed, delete_after_ms: int) -> bool:
    garbage = keys.garbage_object(unnamed.domain, unnamed.wal_id)
    absent = (
        marker_of(unnamed.domain, unnamed.wal_id),
        keys.wal_object(unnamed.domain, unnamed.wal_id),
        garbage,
    )
    try:
        await store.commit(
            keys.domain_scope(unnamed.domain),
            [Check(key, None) for key in absent],
            [Put(garbage, encode(Garbage(unnamed.path, delete_after_ms)))],
        )
    except Conflict:
        return False
    return True
