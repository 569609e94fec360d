"""Quotas as they are stored: the limits of every entity, in memory and followed by a watch.

An entity is a user, a client id, both, or an address; each by name or as the default. There are
few of them, so each broker holds them all. An entity without limits has no key.

Invariant: `alter` returns when its changes are stored and `all` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from metadata import keys
from metadata.following import follow
from metadata.store import (
    Change,
    Check,
    CommitUnknown,
    Conflict,
    Delete,
    Gap,
    MetadataStore,
    Put,
    Watch,
)
from metadata.values import Quota, decode, encode

# A large request goes in pieces, so that it fits into one message of any store.
ENTITIES_PER_COMMIT = 64

Entity = Mapping[str, str | None]


class Alteration(NamedTuple):
    """What is to change of one entity; other limits of it stay."""

    entity: Entity
    limits: Mapping[str, float]
    removed: Set[str] = frozenset()


class _Known(NamedTuple):
    version: int
    quota: Quota | None
    """None: deleted. Kept, so that an older notification doesn't bring it back."""


class Quotas:
    def __init__(self, store: MetadataStore, on_change: Callable[[], None]) -> None:
        self._store = store
        self._on_change = on_change
        self._known: dict[str, _Known] = {}
        self._watch: Watch | None = None

    def all(self) -> list[Quota]:
        return [known.quota for _, known in sorted(self._known.items()) if known.quota is not None]

    async def load(self) -> None:
        if self._watch is None:
            # Before the scan: what changes meanwhile comes through the watch.
            self._watch = self._store.watch(keys.QUOTAS)
        found: dict[str, _Known] = {}
        async for key, value, version in self._store.scan(
            keys.QUOTAS, keys.end_of(keys.QUOTAS), scope=keys.QUOTAS_SCOPE
        ):
            found[key] = _Known(version, decode(Quota, value))
        for key, known in self._known.items():
            if key in found and known.version > found[key].version:
                found[key] = known
        self._known = found
        self._on_change()

    async def follow(self) -> None:
        """Keeps up with what others change; runs until cancelled. `load` first."""
        assert self._watch is not None
        await follow(self._watch, self._take)

    async def _take(self, change: Change | Gap) -> None:
        if isinstance(change, Gap):
            await self.load()
            return
        quota = None if change.value is None else decode(Quota, change.value)
        if self._learn(change.key, _Known(change.version, quota)):
            self._on_change()

    def _learn(self, key: str, known: _Known) -> bool:
        """False: that is no news."""
        old = self._known.get(key)
        if old is not None and old.version >= known.version:
            return False
        self._known[key] = known
        return True

    async def alter(self, alterations: Sequence[Alteration]) -> None:
        """Entities must be distinct. Raises Unavailable."""
        for first in range(0, len(alterations), ENTITIES_PER_COMMIT):
            piece = alterations[first : first + ENTITIES_PER_COMMIT]
            while not await self._alter(piece):
                pass

    async def _alter(self, alterations: Sequence[Alteration]) -> bool:
        """False: somebody was faster, or nobody knows. Limits are absolute, so that what may
        have been stored already can be stored again."""
        checks: list[Check] = []
        news: dict[str, Quota | None] = {}
        for each in alterations:
            key = keys.quota(each.entity)
            found = await self._store.get(key, scope=keys.QUOTAS_SCOPE)
            limits = {} if found is None else decode(Quota, found.value).limits
            changed = {k: v for k, v in limits.items() if k not in each.removed} | dict(each.limits)
            if changed == limits:
                continue
            checks.append(Check(key, None if found is None else found.version))
            news[key] = Quota(dict(each.entity), changed) if changed else None
        if not news:
            return True
        writes = [
            Delete(key) if quota is None else Put(key, encode(quota)) for key, quota in news.items()
        ]
        try:
            version = (await self._store.commit(keys.QUOTAS_SCOPE, checks, writes)).version
        except (Conflict, CommitUnknown):
            return False
        for key, quota in news.items():
            self._learn(key, _Known(version, quota))
        self._on_change()
        return True
