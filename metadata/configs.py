"""What is set for brokers, groups and client metrics. (For topics, it is in the topic's record.)

Held in memory and kept current by the store's watch. A change is one compare-and-set of the
resource's record, and is in memory when it returns. Applying the same change again must do no
harm: that is how an unknown outcome is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
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
from metadata.values import Overrides, decode, encode

BROKERS = "brokers"
"""Named by the broker's id; the empty name is the default of all brokers."""
GROUPS = "groups"
CLIENT_METRICS = "client-metrics"
KINDS = (BROKERS, GROUPS, CLIENT_METRICS)


_NOTHING: Mapping[str, str] = MappingProxyType({})


class _Known(NamedTuple):
    version: int
    values: Mapping[str, str]


class StoredConfigs:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}
        self._watch: Watch | None = None
        self.generation = 0
        """Grows with every change, so that what was derived from an older one can be told."""
        self.on_change: Callable[[str, str], None] = lambda kind, name: None
        """Called with the kind and the name of what has changed."""

    def of(self, kind: str, name: str) -> Mapping[str, str]:
        known = self._known.get(keys.config(kind, name))
        return _NOTHING if known is None else known.values

    def names(self, kind: str) -> list[str]:
        """The resources of a kind that have something set, sorted."""
        prefix = keys.configs(kind)
        return sorted(
            keys.config_of(key)[1]
            for key, known in self._known.items()
            if key.startswith(prefix) and known.values
        )

    async def change(
        self, kind: str, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """Replaces what is set by `change` of it; what `change` raises is passed on."""
        key = keys.config(kind, name)
        while True:
            found = await self._store.get(key, scope=keys.CLUSTER_SCOPE)
            current = _NOTHING if found is None else decode(Overrides, found.value).values
            wanted = dict(change(current))
            if wanted == current:
                if found is not None:
                    self._learn(key, found.version, current)
                return
            check = Check(key, None if found is None else found.version)
            write = Put(key, encode(Overrides(wanted))) if wanted else Delete(key)
            try:
                result = await self._store.commit(keys.CLUSTER_SCOPE, [check], [write])
            except (Conflict, CommitUnknown):
                continue
            self._learn(key, result.version, wanted)
            return

    # -- kept current ------------------------------------------------------------------------

    async def load(self) -> None:
        if self._watch is None:
            # Before the first read, so that nothing is missed until `follow` runs.
            self._watch = self._store.watch(keys.CONFIGS)
        found: dict[str, _Known] = {}
        for kind in KINDS:
            prefix = keys.configs(kind)
            async for item in self._store.scan(
                prefix, keys.end_of(prefix), scope=keys.CLUSTER_SCOPE
            ):
                found[item.key] = _Known(item.version, decode(Overrides, item.value).values)
        changed = [
            key
            for key in self._known.keys() | found.keys()
            if self._known.get(key) != found.get(key)
        ]
        self._known = found
        for key in changed:
            self._changed(key)

    async def follow(self) -> None:
        """Keeps current with what other brokers do; runs until cancelled. `load` first."""
        assert self._watch is not None
        await follow(self._watch, self._take)

    async def _take(self, change: Change | Gap) -> None:
        if isinstance(change, Gap):
            await self.load()
            return
        values = {} if change.value is None else decode(Overrides, change.value).values
        self._learn(change.key, change.version, values)

    def _learn(self, key: str, version: int, values: Mapping[str, str]) -> None:
        known = self._known.get(key)
        if known is not None and known.version >= version:
            return
        # What is empty was deleted; its version stays, so that older news don't bring it back.
        self._known[key] = _Known(version, MappingProxyType(dict(values)))
        if known is None or known.values != values:
            self._changed(key)

    def _changed(self, key: str) -> None:
        self.generation += 1
        self.on_change(*keys.config_of(key))
