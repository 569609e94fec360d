from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.compactor.world import World
from wal.objectstore import open_store


@pytest.fixture(params=["memory", "local"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    url = "memory://" if request.param == "memory" else (tmp_path / "objects").as_uri()
    world = World(open_store(url, threads=2))
    yield world
    await world.store.close()
    await world.objects.close()
