"""What only remote stores have: requests that are counted, refusals that are not the object's."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from wal.objectstore import AlreadyExists, Unavailable
from wal.remote import RemoteStore


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine where nothing listens, and nothing can while we hold it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def test_requests_are_counted() -> None:
    store = RemoteStore.open("memory://")
    await store.put("one", [b"x"])
    await store.get("one")
    await store.get_range("one", 0, 1)
    await store.head("one")
    await store.delete("one")
    counted = {"put": 1, "get": 2, "head": 1, "delete": 1}
    assert {kind: count for kind, count in store.requests.items() if kind != "list"} == counted


async def test_an_existing_object_is_looked_for_before_it_is_believed() -> None:
    store = RemoteStore.open("memory://")
    await store.put("one", [b"x"])
    with pytest.raises(AlreadyExists):
        await store.put("one", [b"y"])
    assert store.requests["head"] == 1


async def test_memory_stores_do_not_share() -> None:
    first, second = RemoteStore.open("memory://"), RemoteStore.open("memory://")
    await first.put("one", [b"x"])
    assert [info async for info in second.list("")] == []


async def test_a_server_that_cannot_be_reached_is_unavailable(closed_port: int) -> None:
    store = RemoteStore.open(
        "s3://bucket/prefix",
        options={
            "endpoint": f"http://127.0.0.1:{closed_port}",
            "access_key_id": "x",
            "secret_access_key": "y",
            "region": "us-east-1",
            "max_retries": "0",
        },
    )
    calls = (
        store.put("one", [b"x"]),
        store.get("one"),
        store.get_range("one", 0, 1),
        store.head("one"),
        store.delete("one"),
    )
    for call in calls:
        with pytest.raises(Unavailable, match="s3://bucket/prefix, object one") as caught:
            await call
        assert "\n" not in str(caught.value)
    with pytest.raises(Unavailable):
        [info async for info in store.list("")]


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket/prefix", "az://box/prefix"])
def test_options_reach_the_store_and_its_client(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a service account GCS would look for one on this machine.
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    options = {"timeout": "7s", "max_retries": "1", "retry_timeout_ms": "500"}
    if url.startswith("az"):
        options["account_name"] = "somebody"
    RemoteStore.open(url, options=options)
    with pytest.raises(ValueError, match=url):
        RemoteStore.open(url, options={**options, "nonsense": "1"})
    with pytest.raises(ValueError, match=url):
        RemoteStore.open(url, options={**options, "timeout": "soon"})
