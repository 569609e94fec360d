"""Consumer groups as they are stored: the directory, the lease, the record, committed offsets.

One group is one scope. Invariants:

- Whoever runs a group holds its lease, and every write to the group checks the version of the
  lease's key. So a holder that was replaced can't write, and neither can a commit of its own that
  is still on its way: `take` always writes the lease anew.
- A holder is alive while its broker's ephemeral record says the registration that the lease names.
  A broker that registers again is another holder, even of its own leases.
- Data of a group is only written when its directory entry was written under the same lease, and an
  entry is only removed if it wasn't written since the removal of the group began. So there may be
  an entry without a group, and never a group without an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from metadata import keys
from metadata.group_values import CommittedOffset, GroupName, GroupRecord, Lease, StoredGroup
from metadata.store import (
    Check,
    CommitUnknown,
    Conflict,
    Delete,
    MetadataStore,
    Put,
    Versioned,
)
from metadata.values import Broker, decode, encode

Partition: TypeAlias = tuple[UUID, int]
"""(topic id, partition)"""

PIECE_BYTES = 512 * 1024
PIECE_KEYS = 2_000
"""A larger change goes in several commits, since some stores take 4 MB a message."""


class Holder(NamedTuple):
    """A broker's registration: what a lease is given to."""

    broker_id: int
    registration: str


class HeldElsewhere(Exception):
    """Another broker, which is alive, runs the group."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(f"broker {lease.broker_id} runs the group")
        self.lease = lease


class LeaseLost(Exception):
    """Somebody else has taken the lease: nothing was written."""


@dataclass(slots=True)
class Held:
    """A lease that this process has taken."""

    group_id: str
    lease: Lease
    version: int
    """Of the lease's key: the condition of every write."""
    entered: bool = False
    """The directory entry was written under this lease, or there was data already."""


class Stored(NamedTuple):
    """What is stored of a group."""

    group: StoredGroup | None
    offsets: dict[Partition, CommittedOffset]

    @property
    def exists(self) -> bool:
        return self.group is not None or bool(self.offsets)


class Groups:
    def __init__(self, store: MetadataStore, *, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms

    # -- reading -----------------------------------------------------------------------------

    async def names(self) -> list[str]:
        """Every group id of the directory; some may have no group."""
        return [
            keys.group_id_of(item.key)
            async for item in self._store.scan(
                keys.GROUP_NAMES, keys.end_of(keys.GROUP_NAMES), scope=keys.GROUP_NAMES_SCOPE
            )
        ]

    async def lease(self, group_id: str) -> Lease | None:
        found = await self._lease(group_id)
        return None if found is None else decode(Lease, found.value)

    async def _lease(self, group_id: str) -> Versioned | None:
        return await self._store.get(keys.group_lease(group_id), scope=keys.group_scope(group_id))

    async def brokers(self) -> list[Broker]:
        """Every broker that is registered now."""
        return [
            decode(Broker, item.value)
            async for item in self._store.scan(
                keys.BROKERS, keys.end_of(keys.BROKERS), scope=keys.CLUSTER_SCOPE
            )
        ]

    async def alive(self, lease: Lease) -> bool:
        """Whether the holder of a lease is still registered."""
        found = await self._store.get(keys.broker(lease.broker_id), scope=keys.CLUSTER_SCOPE)
        if found is None:
            return False
        return decode(Broker, found.value).registration == lease.registration

    async def read(self, group_id: str) -> Stored:
        """What is stored; stable only for whoever holds the lease."""
        scope = keys.group_scope(group_id)
        found = await self._store.get(keys.group_record(group_id), scope=scope)
        prefix = keys.group_offsets(group_id)
        offsets = {
            keys.partition_of(item.key): decode(CommittedOffset, item.value)
            async for item in self._store.scan(prefix, keys.end_of(prefix), scope=scope)
        }
        return Stored(None if found is None else decode(StoredGroup, found.value), offsets)

    # -- the lease ---------------------------------------------------------------------------

    async def take(self, group_id: str, holder: Holder) -> Held:
        """The lease, with a higher epoch than any before; HeldElsewhere if another broker that
        is alive has it."""
        key, scope = keys.group_lease(group_id), keys.group_scope(group_id)
        while True:
            found = await self._lease(group_id)
            epoch = 1
            if found is not None:
                before = decode(Lease, found.value)
                if before.broker_id != holder.broker_id and await self.alive(before):
                    raise HeldElsewhere(before)
                epoch = before.epoch + 1
            lease = Lease(holder.broker_id, holder.registration, epoch, self._now_ms())
            check = Check(key, None if found is None else found.version)
            try:
                result = await self._store.commit(scope, [check], [Put(key, encode(lease))])
            except (Conflict, CommitUnknown):
                # Unknown: if it was ours, the next round takes the lease from ourselves.
                continue
            return Held(group_id, lease, result.version)

    async def open(self, group_id: str, holder: Holder) -> tuple[Held, Stored]:
        """Takes the lease, then reads what nobody else can change any more."""
        held = await self.take(group_id, holder)
        stored = await self.read(group_id)
        held.entered = stored.exists
        return held, stored

    # -- writing -----------------------------------------------------------------------------

    async def save(self, held: Held, record: GroupRecord) -> StoredGroup:
        """Stores the record. LeaseLost, Unavailable: nothing was written. CommitUnknown: take the
        lease again and read."""
        await self._enter(held)
        group = StoredGroup(record, self._now_ms())
        await self._commit(held, [Put(keys.group_record(held.group_id), encode(group))])
        return group

    async def save_offsets(
        self, held: Held, offsets: Mapping[Partition, CommittedOffset | None]
    ) -> None:
        """Stores committed offsets; None removes one. A large number isn't stored at once, so
        after an error some may be."""
        if not offsets:
            return
        if not held.entered and any(value is not None for value in offsets.values()):
            await self._enter(held)
        for piece in _pieces(held.group_id, offsets):
            await self._commit(held, piece)

    async def drop_record(self, held: Held) -> None:
        """Removes the record; committed offsets stay."""
        await self._commit(held, [Delete(keys.group_record(held.group_id))])

    async def delete(self, held: Held, partitions: Iterable[Partition]) -> None:
        """Removes all of a group, whose offsets are of these partitions, and lets the lease go."""
        group_id = held.group_id
        name = keys.group_name(group_id)
        entry = await self._store.get(name, scope=keys.GROUP_NAMES_SCOPE)
        await self.save_offsets(held, dict.fromkeys(partitions))
        await self._commit(
            held, [Delete(keys.group_record(group_id)), Delete(keys.group_lease(group_id))]
        )
        held.entered = False
        if entry is None:
            return
        try:
            await self._store.commit(
                keys.GROUP_NAMES_SCOPE, [Check(name, entry.version)], [Delete(name)]
            )
        except (Conflict, CommitUnknown):
            # Somebody has begun the group anew; or an entry without a group may stay.
            pass

    async def _enter(self, held: Held) -> None:
        if held.entered:
            return
        entry = Put(keys.group_name(held.group_id), encode(GroupName(held.group_id)))
        await self._store.commit(keys.GROUP_NAMES_SCOPE, [], [entry])
        held.entered = True

    async def _commit(self, held: Held, writes: list[Put | Delete]) -> None:
        check = Check(keys.group_lease(held.group_id), held.version)
        try:
            await self._store.commit(keys.group_scope(held.group_id), [check], writes)
        except Conflict as conflict:
            raise LeaseLost(held.group_id) from conflict


def _pieces(
    group_id: str, offsets: Mapping[Partition, CommittedOffset | None]
) -> Iterable[list[Put | Delete]]:
    piece: list[Put | Delete] = []
    size_bytes = 0
    for (topic, partition), value in offsets.items():
        key = keys.group_offset(group_id, topic, partition)
        write = Delete(key) if value is None else Put(key, encode(value))
        piece.append(write)
        size_bytes += len(key) + (len(write.value) if isinstance(write, Put) else 0)
        if size_bytes >= PIECE_BYTES or len(piece) >= PIECE_KEYS:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece
