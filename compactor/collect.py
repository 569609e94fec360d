"""The collector: which step is due when, and what it left undone.

A step that fails (a store is down, a value can't be read) is logged and tried again in its next
round; the other steps go on. Nothing here is needed for correctness of the log: a collector that
never runs costs space only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from compactor.abandoned import AbandonedTopics
from compactor.expiry import HeadOf, expire_producers, heads_of
from compactor.garbage import GarbageCollector
from compactor.orphans import OrphanCollector, OrphanPolicy
from compactor.sweep import leave_stamp, sweep
from metadata.store import MetadataStore, StoreError
from metadata.streams import DomainLog
from metadata.topics import Topics
from metadata.trim import clear_below, has_entries_below
from metadata.values import UnknownFormat
from wal.objectstore import ObjectStore, ObjectStoreError

log = logging.getLogger(__name__)

FIRST_SWEEP_MS = 3_600_000
"""After the start, so that a broker that is restarted every day is swept all the same; and
after a sweep that failed."""

_RETRIABLE = (StoreError, ObjectStoreError, UnknownFormat, msgspec.MsgspecError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    cluster_id: str
    incarnation: str
    """Of this process; its own staging markers carry it."""
    sole_owner: bool
    """No other process can be alive on these stores, and no PUT outlives its process: embedded
    metadata and a local folder."""
    interval_ms: int
    sweep_interval_ms: int
    """0: never."""
    producer_check_interval_ms: int
    orphan_ttl_ms: int
    grace_ms: int
    range_life_ms: int
    """For how long a broker takes names from the range of one marker."""
    producer_expiration_ms: int


@dataclass(slots=True)
class Backlog:
    """What waits, as of the last round."""

    orphans: int = 0
    """Staging markers that are fenced."""
    pending_deletes: int = 0
    """Objects that nothing refers to and that still exist."""


class _Every:
    def __init__(self, interval_ms: int, first_ms: int) -> None:
        self._interval_ms = interval_ms
        self._next_ms = first_ms

    def due(self, now_ms: int) -> bool:
        # A clock that was set back must not put the next time off by more than one interval.
        self._next_ms = min(self._next_ms, now_ms + self._interval_ms)
        return now_ms >= self._next_ms

    def attempted(self, now_ms: int, succeeded: bool) -> None:
        wait_ms = self._interval_ms
        self._next_ms = now_ms + (wait_ms if succeeded else min(wait_ms, FIRST_SWEEP_MS))


class Collector:
    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        domains: Sequence[DomainLog],
        policy: Policy,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._objects = objects
        self._domains = domains
        self._policy = policy
        self.producer_expiration_ms = policy.producer_expiration_ms
        self._now_ms = now_ms
        self.backlog = Backlog()
        self._stamped = False
        orphans = OrphanPolicy(
            ttl_ms=policy.orphan_ttl_ms,
            settle_ms=policy.grace_ms,
            range_life_ms=policy.range_life_ms,
            incarnation=policy.incarnation,
            sole_owner=policy.sole_owner,
        )
        numbers = range(len(domains))
        self._orphans = [OrphanCollector(store, objects, number, orphans) for number in numbers]
        self._garbage = [GarbageCollector(store, objects, number) for number in numbers]
        registry = Topics(store, domains, now_ms=now_ms, garbage_grace_ms=policy.grace_ms)
        self._abandoned = AbandonedTopics(store, registry)
        started_ms = now_ms()
        self._check_due = _Every(policy.producer_check_interval_ms, started_ms)
        first_sweep_ms = min(FIRST_SWEEP_MS, policy.sweep_interval_ms)
        self._sweep_due = _Every(policy.sweep_interval_ms, started_ms + first_sweep_ms)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(self._policy.interval_ms / 1000)

    async def round(self) -> bool:
        """Every step that is due, once. False if one of them has failed."""
        now_ms = self._now_ms()
        all_well = True
        if not self._stamped:
            all_well &= await self._attempt("the stamp of the cluster", self._leave_stamp)
        if self._check_due.due(now_ms):
            checked = await self._attempt("streams", self.check_streams)
            self._check_due.attempted(now_ms, checked)
            all_well &= checked
        if self._policy.sweep_interval_ms and self._sweep_due.due(now_ms):
            swept = await self._attempt("the sweep", self.sweep)
            self._sweep_due.attempted(now_ms, swept)
            all_well &= swept
        all_well &= await self._attempt("orphans", self.collect_orphans)
        all_well &= await self._attempt("garbage", self.collect_garbage)
        return all_well

    async def _attempt(self, name: str, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except _RETRIABLE as error:
            log.warning("collection (%s) is put off to the next round: %s", name, error)
            return False
        return True

    # -- steps -------------------------------------------------------------------------------

    async def collect_garbage(self) -> None:
        deleted = pending = 0
        for garbage in self._garbage:
            result = await garbage.collect(self._now_ms())
            deleted += result.deleted
            pending += result.pending
        self.backlog.pending_deletes = pending
        if deleted:
            log.info("deleted %d objects that nothing refers to; %d wait", deleted, pending)

    async def collect_orphans(self) -> None:
        removed = left = 0
        for orphans in self._orphans:
            result = await orphans.collect(self._now_ms())
            removed += result.removed
            left += result.left
        self.backlog.orphans = left
        if removed:
            log.info("collected the orphans of %d staging markers; %d wait", removed, left)

    async def check_streams(self) -> None:
        """Expires producers, and finishes what others began to create or delete."""
        heads: list[HeadOf] = []
        for number in range(len(self._domains)):
            heads += [found async for found in heads_of(self._store, number)]
        policy = self._policy
        await self._abandoned.mark(heads, now_ms=self._now_ms(), ttl_ms=policy.orphan_ttl_ms)
        await self._abandoned.remove_strays(heads)
        await self._abandoned.finish_deletions()
        await self._clear_trimmed(heads)
        expired = await expire_producers(
            self._store,
            [found.ref for found in heads],
            now_ms=self._now_ms(),
            expiration_ms=self.producer_expiration_ms,
        )
        if expired:
            log.info("forgot %d producers that were silent for too long", expired)

    async def _clear_trimmed(self, heads: Sequence[HeadOf]) -> None:
        """What a process that died has left below the start of a log."""
        for ref, head in heads:
            if head.log_start and await has_entries_below(self._store, ref, head.log_start):
                after_ms = self._now_ms() + self._policy.grace_ms
                removed = await clear_below(
                    self._store, ref, head.log_start, delete_after_ms=after_ms
                )
                log.info("removed %d entries below the start of stream %d", removed, ref.stream_id)

    async def sweep(self) -> None:
        await self._leave_stamp()
        policy = self._policy
        result = await sweep(
            self._store,
            self._objects,
            cluster_id=policy.cluster_id,
            domains=len(self._domains),
            now_ms=self._now_ms(),
            ttl_ms=policy.orphan_ttl_ms,
            grace_ms=policy.grace_ms,
        )
        if result.named:
            log.warning("the sweep found %d objects that nothing named", result.named)

    async def _leave_stamp(self) -> None:
        await leave_stamp(self._objects, self._policy.cluster_id)
        self._stamped = True
