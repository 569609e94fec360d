"""One broker process for all clients; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.client import Address
from tests.wire.process import broker


@pytest.fixture(scope="package")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with broker(tmp_path_factory.mktemp("clients") / "data") as process:
        yield process.address
        assert process.running, "the broker has ended"


@pytest.fixture
def bootstrap(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    name: str = request.node.name
    return "".join(c if c.isalnum() else "-" for c in name)[:200]
