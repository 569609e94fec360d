"""A broker inside the test, on a real SQLite file and a real folder that can be made to fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drayd.app import Running, open_metadata, open_objects, serve
from drayd.config import Settings
from drayd.kinds import HostPort
from drayd.metrics import Metrics
from metadata.faults import FaultyStore
from metadata.store import Check, CommitResult, Delete, MetadataStore, Put, Unavailable
from tests.wire.client import Address, Client
from wal.faulty import Faulty
from wal.objectstore import ObjectStore


class FaultyMetadata(FaultyStore):
    """Also has outages: while `down`, nothing can be read or written."""

    down = False
    refused = 0
    """Calls during outages."""

    def _before_read(self) -> None:
        self._answer()
        super()._before_read()

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        self._answer()
        return await super().commit(scope, checks, writes)

    def _answer(self) -> None:
        if self.down:
            self.refused += 1
            raise Unavailable("the store is down")


@dataclass
class LocalBroker:
    running: Running
    metadata: FaultyMetadata
    objects: Faulty

    @property
    def address(self) -> Address:
        return self.running.address.host, self.running.address.port

    def set_put_timeout(self, seconds: float) -> None:
        """For PUTs that start from now on; so only those that are meant to fail have little time,
        and a slow machine changes nothing."""
        for writer in self.running.broker.writers:
            writer._policy = replace(writer._policy, put_timeout_s=seconds)

    async def connect(self) -> Client:
        return await Client.connect(self.address)


@asynccontextmanager
async def local_broker(data_dir: Path, **settings: Any) -> AsyncIterator[LocalBroker]:
    stores: list[Any] = []

    async def metadata(settings: Settings, metrics: Metrics) -> MetadataStore:
        store = FaultyMetadata(await open_metadata(settings, metrics))
        stores.append(store)
        return store

    def objects(settings: Settings, metrics: Metrics) -> ObjectStore:
        store = Faulty(open_objects(settings, metrics))
        stores.append(store)
        return store

    chosen = Settings(
        data_dir=data_dir, listen=HostPort("127.0.0.1", 0), http_listen=None, **settings
    )
    async with serve(chosen, metadata=metadata, objects=objects) as running:
        faulty_metadata, faulty_objects = stores
        yield LocalBroker(running, faulty_metadata, faulty_objects)
