"""One broker process for all tests of a folder; each test has topics of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.wire.client import Client
from tests.wire.process import BrokerProcess, broker


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("wire") / "data") as process:
        yield process
        assert process.running, "the broker has ended"


@pytest.fixture
async def client(server: BrokerProcess) -> AsyncIterator[Client]:
    async with await Client.connect(server.address) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    name: str = request.node.name
    return "".join(c if c.isalnum() else "-" for c in name)[:200]
