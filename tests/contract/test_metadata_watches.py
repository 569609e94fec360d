"""What every metadata store promises: watches, sessions and ephemeral keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from metadata.faults import FaultyStore
from metadata.store import (
    Change,
    Check,
    Conflict,
    Delete,
    Gap,
    MetadataStore,
    Put,
    SessionLost,
    Unavailable,
    Watch,
)
from tests.contract.stores import StoreUnderTest

SCOPE = "domain-0"
PATIENCE_S = 20
"""Bounds a test that hangs; no outcome depends on it."""


async def read(watch: Watch, count: int) -> list[Change | Gap]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(watch) for _ in range(count)]


async def read_until(watch: Watch, last: Callable[[Change | Gap], bool]) -> list[Change | Gap]:
    items: list[Change | Gap] = []
    async with asyncio.timeout(PATIENCE_S):
        while not items or not last(items[-1]):
            items.append(await anext(watch))
    return items


async def test_a_watch_gives_changes_in_order_with_their_values(
    under_test: StoreUnderTest,
) -> None:
    writer, watcher = await under_test.client(), await under_test.client()
    await writer.commit(SCOPE, [], [Put("/a/0", b"before the watch")])
    watch = watcher.watch("/a/")
    first = await writer.commit(SCOPE, [], [Put("/a/1", b"one")])
    second = await writer.commit(SCOPE, [], [Put("/a/1", b"uno")])
    third = await writer.commit(SCOPE, [], [Delete("/a/1")])
    assert await read(watch, 3) == [
        Change("/a/1", b"one", first.version),
        Change("/a/1", b"uno", second.version),
        Change("/a/1", None, third.version),
    ]


async def test_a_watch_sees_its_prefix_in_every_scope(store: MetadataStore) -> None:
    watch = store.watch("/a/")
    await store.commit("one", [], [Put("/b/1", b""), Put("/a/1", b""), Put("/ab/1", b"")])
    await store.commit("two", [], [Put("/a/2/deeper", b"")])
    await store.commit("one", [], [Put("/a/3", b"")])
    items = await read_until(watch, lambda item: isinstance(item, Change) and item.key == "/a/3")
    assert [item.key for item in items if isinstance(item, Change)] == [
        "/a/1",
        "/a/2/deeper",
        "/a/3",
    ]


async def test_a_refused_commit_is_not_announced(store: MetadataStore) -> None:
    watch = store.watch("/a/")
    with pytest.raises(Conflict):
        await store.commit(SCOPE, [Check("/a/1", 1)], [Put("/a/1", b"refused")])
    await store.commit(SCOPE, [], [Put("/a/1", b"applied")])
    (item,) = await read(watch, 1)
    assert isinstance(item, Change)
    assert item.value == b"applied"


async def test_concurrent_commits_are_announced_in_the_order_of_their_versions(
    store: MetadataStore,
) -> None:
    watch = store.watch("/a/")
    await asyncio.gather(
        *(store.commit(SCOPE, [], [Put("/a/1", str(n).encode())]) for n in range(30))
    )
    items = await read(watch, 30)
    versions = [item.version for item in items if isinstance(item, Change)]
    assert len(versions) == 30
    assert versions == sorted(versions)
    found = await store.get("/a/1", scope=SCOPE)
    last = items[-1]
    assert found is not None
    assert isinstance(last, Change)
    assert (last.value, last.version) == found


async def test_two_watches_are_independent(store: MetadataStore) -> None:
    first, second = store.watch("/a/"), store.watch("/")
    await store.commit(SCOPE, [], [Put("/a/1", b"")])
    await first.close()
    await store.commit(SCOPE, [], [Put("/a/2", b"")])
    assert [item.key for item in await read(second, 2) if isinstance(item, Change)] == [
        "/a/1",
        "/a/2",
    ]


async def test_a_slow_watcher_is_told_of_the_gap_and_goes_on(under_test: StoreUnderTest) -> None:
    store = await under_test.client(max_pending_changes=8)
    watch = store.watch("/a/")
    for number in range(30):
        await store.commit(SCOPE, [], [Put("/a/1", str(number).encode())])
    await store.commit(SCOPE, [], [Put("/a/end", b"")])
    items = await read_until(watch, lambda item: isinstance(item, Change) and item.key == "/a/end")
    assert Gap() in items
    assert len(items) <= 9
    await store.commit(SCOPE, [], [Put("/a/2", b"")])
    (item,) = await read(watch, 1)
    assert isinstance(item, Change)
    assert item.key == "/a/2"


async def test_a_closed_watch_ends_its_reader(store: MetadataStore) -> None:
    watch = store.watch("/a/")
    reader = asyncio.create_task(read_all(watch))
    await asyncio.sleep(0)
    await watch.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await reader == []


async def test_a_closed_store_ends_its_watches(under_test: StoreUnderTest) -> None:
    store = await under_test.client()
    reader = asyncio.create_task(read_all(store.watch("/a/")))
    await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await reader == []


async def read_all(watch: Watch) -> list[Change | Gap]:
    return [item async for item in watch]


async def test_an_ephemeral_key_is_read_scanned_and_watched(under_test: StoreUnderTest) -> None:
    holder, other = await under_test.client(), await under_test.client()
    watch = other.watch("/brokers/")
    session = await holder.session(10)
    await session.put("/brokers/1", b"here", scope="brokers")
    found = await other.get("/brokers/1", scope="brokers")
    assert found is not None
    assert found.value == b"here"
    rows = [row async for row in other.scan("/brokers/", "/brokers/~", scope="brokers")]
    assert [(row.key, row.value) for row in rows] == [("/brokers/1", b"here")]
    ceiling = await other.ceiling("/brokers/0", scope="brokers")
    assert ceiling is not None
    assert ceiling.key == "/brokers/1"
    await session.put("/brokers/1", b"still here", scope="brokers")
    await session.delete("/brokers/1", scope="brokers")
    assert await other.get("/brokers/1", scope="brokers") is None
    items = await read_until(watch, lambda item: isinstance(item, Change) and item.value is None)
    values = [item.value for item in items if isinstance(item, Change)]
    assert values == [b"here", b"still here", None]


async def test_a_closed_session_takes_its_keys_and_no_others(under_test: StoreUnderTest) -> None:
    holder, other = await under_test.client(), await under_test.client()
    ending, staying = await holder.session(10), await other.session(10)
    await ending.put("/brokers/1", b"", scope="brokers")
    await ending.put("/lease/1", b"", scope="groups")
    await staying.put("/brokers/2", b"", scope="brokers")
    await holder.commit("brokers", [], [Put("/brokers/durable", b"")])
    watch = other.watch("/")
    await ending.close()
    await ending.close()
    assert ending.lost.is_set()
    assert not staying.lost.is_set()
    rows = [row.key async for row in other.scan("/brokers/", "/brokers/~", scope="brokers")]
    assert rows == ["/brokers/2", "/brokers/durable"]
    assert await other.get("/lease/1", scope="groups") is None
    items = await read(watch, 2)
    gone = {item.key for item in items if isinstance(item, Change) and item.value is None}
    assert gone == {"/brokers/1", "/lease/1"}
    for write in (
        ending.put("/brokers/1", b"", scope="brokers"),
        ending.delete("/brokers/1", scope="brokers"),
    ):
        with pytest.raises(SessionLost):
            await write


async def test_a_session_closed_beside_its_own_put_leaves_nothing(store: MetadataStore) -> None:
    for _ in range(10):
        session = await store.session(10)
        await asyncio.gather(
            session.put("/brokers/1", b"", scope="brokers"),
            session.close(),
            session.put("/brokers/2", b"", scope="brokers"),
            return_exceptions=True,
        )
        rows = [row.key async for row in store.scan("/brokers/", "/brokers/~", scope="brokers")]
        assert rows == []


async def test_closing_a_client_loses_its_sessions(under_test: StoreUnderTest) -> None:
    holder = await under_test.client()
    session = await holder.session(10)
    await session.put("/brokers/1", b"", scope="brokers")
    await holder.close()
    assert session.lost.is_set()
    successor = await under_test.client()
    assert await successor.get("/brokers/1", scope="brokers") is None
    with pytest.raises(SessionLost):
        await session.put("/brokers/1", b"", scope="brokers")


async def test_a_lost_session_tells_its_holder(store: MetadataStore) -> None:
    faulty = FaultyStore(store)
    session = await faulty.session(10)
    await session.put("/brokers/1", b"", scope="brokers")
    waiting = asyncio.create_task(session.lost.wait())
    await faulty.lose_sessions()
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    assert await store.get("/brokers/1", scope="brokers") is None
    again = await faulty.session(10)
    await again.put("/brokers/1", b"back", scope="brokers")
    assert await store.get("/brokers/1", scope="brokers") is not None


async def test_an_ephemeral_key_has_one_holder(under_test: StoreUnderTest) -> None:
    first, second = await under_test.client(), await under_test.client()
    sessions = [await first.session(10), await second.session(10)]
    results = await asyncio.gather(
        *(session.put("/lease/1", session.id.encode(), scope="g") for session in sessions),
        return_exceptions=True,
    )
    assert sum(isinstance(result, Conflict) for result in results) == 1
    winner, loser = sessions if results[0] is None else sessions[::-1]
    found = await second.get("/lease/1", scope="g")
    assert found is not None
    assert found.value == winner.id.encode()
    with pytest.raises(Conflict):
        await loser.delete("/lease/1", scope="g")
    await winner.close()
    await loser.put("/lease/1", b"mine now", scope="g")


async def test_ephemeral_and_durable_keys_do_not_mix(store: MetadataStore) -> None:
    session = await store.session(10)
    await session.put("/lease/1", b"", scope=SCOPE)
    found = await store.get("/lease/1", scope=SCOPE)
    assert found is not None
    with pytest.raises(ValueError, match="ephemeral"):
        await store.commit(SCOPE, [Check("/lease/1", found.version)], [Put("/a/1", b"")])
    with pytest.raises(ValueError, match="ephemeral"):
        await store.commit(SCOPE, [], [Delete("/lease/1")])
    await store.commit(SCOPE, [], [Put("/a/1", b"")])
    with pytest.raises(Conflict):
        await session.put("/a/1", b"", scope=SCOPE)


@pytest.mark.parametrize("ttl", [0, -1.5])
async def test_a_session_needs_a_time_to_live(store: MetadataStore, ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl"):
        await store.session(ttl)


async def test_a_watch_of_a_closed_store_is_refused(under_test: StoreUnderTest) -> None:
    store = await under_test.client()
    await store.close()
    with pytest.raises(Unavailable):
        store.watch("/")
