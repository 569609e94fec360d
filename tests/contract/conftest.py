from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from metadata.store import MetadataStore
from tests.contract.stores import STORES, StoreUnderTest


@pytest_asyncio.fixture(params=list(STORES))
async def under_test(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[StoreUnderTest]:
    store = STORES[request.param](tmp_path)
    yield store
    await store.close()


@pytest_asyncio.fixture
async def store(under_test: StoreUnderTest) -> MetadataStore:
    return await under_test.client()
