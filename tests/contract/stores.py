"""Every metadata store that the contract suite runs over. A new one adds one class here."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from metadata.memory import MemoryState, MemoryStore
from metadata.sqlite import SqliteStore
from metadata.store import MetadataStore


class StoreUnderTest(Protocol):
    """One store with its data. ``client`` may be called often: each is a user of that store."""

    async def client(self, max_pending_changes: int = 1000) -> MetadataStore: ...

    async def close(self) -> None: ...


class MemoryUnderTest:
    def __init__(self, folder: Path) -> None:
        self._state = MemoryState()
        self._clients: list[MemoryStore] = []

    async def client(self, max_pending_changes: int = 1000) -> MetadataStore:
        self._clients.append(MemoryStore(self._state, max_pending_changes=max_pending_changes))
        return self._clients[-1]

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


class SqliteUnderTest:
    """All users in the owning process share one object; after it is closed, a new one opens."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metadata.db"
        self._store: SqliteStore | None = None

    async def client(self, max_pending_changes: int = 1000) -> MetadataStore:
        if self._store is None or self._store.closed:
            self._store = await SqliteStore.open(
                self._path, max_pending_changes=max_pending_changes
            )
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


STORES: dict[str, type[MemoryUnderTest | SqliteUnderTest]] = {
    "memory": MemoryUnderTest,
    "sqlite": SqliteUnderTest,
}
