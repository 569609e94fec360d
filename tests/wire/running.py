"""A broker inside the test, on a real SQLite file and a real folder that can be made to fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drayd.app import Running, open_metadata, open_objects, serve
from drayd.config import Settings
from drayd.kinds import HostPort
from drayd.metrics import Metrics
from metadata.faults import FaultyStore
from metadata.store import MetadataStore
from tests.wire.client import Address, Client
from wal.faulty import Faulty
from wal.objectstore import ObjectStore


@dataclass
class LocalBroker:
    running: Running
    metadata: FaultyStore
    objects: Faulty

    @property
    def address(self) -> Address:
        return self.running.address.host, self.running.address.port

    async def connect(self) -> Client:
        return await Client.connect(self.address)


@asynccontextmanager
async def local_broker(data_dir: Path, **settings: Any) -> AsyncIterator[LocalBroker]:
    stores: list[Any] = []

    async def metadata(settings: Settings, metrics: Metrics) -> MetadataStore:
        store = FaultyStore(await open_metadata(settings, metrics))
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
