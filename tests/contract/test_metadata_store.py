"""What every metadata store promises: reads, ranges, conditional commits, unknown outcomes."""

from __future__ import annotations

import asyncio

import pytest

from metadata.faults import Fault, FaultyStore
from metadata.store import (
    Check,
    CommitUnknown,
    Conflict,
    Delete,
    KeyValue,
    MetadataStore,
    Put,
    Unavailable,
    Versioned,
)
from tests.contract.stores import StoreUnderTest

SCOPE = "domain-0"


async def scanned(
    store: MetadataStore,
    start: str,
    end: str,
    *,
    scope: str = SCOPE,
    limit: int | None = None,
    reverse: bool = False,
) -> list[str]:
    rows = store.scan(start, end, scope=scope, limit=limit, reverse=reverse)
    return [row.key async for row in rows]


async def put(store: MetadataStore, *keys: str, scope: str = SCOPE) -> int:
    result = await store.commit(scope, [], [Put(key, key.encode()) for key in keys])
    return result.version


async def test_get_gives_the_value_with_the_version_of_its_commit(store: MetadataStore) -> None:
    assert await store.get("/a/1", scope=SCOPE) is None
    result = await store.commit(SCOPE, [], [Put("/a/1", b"one"), Put("/a/2", b"")])
    assert await store.get("/a/1", scope=SCOPE) == Versioned(b"one", result.version)
    assert await store.get("/a/2", scope=SCOPE) == Versioned(b"", result.version)
    assert await store.get("/a/3", scope=SCOPE) is None


async def test_a_later_commit_replaces_and_deletes(store: MetadataStore) -> None:
    first = await store.commit(SCOPE, [], [Put("/a/1", b"one"), Put("/a/2", b"two")])
    second = await store.commit(SCOPE, [], [Put("/a/1", b"uno"), Delete("/a/2")])
    assert second.version > first.version
    assert await store.get("/a/1", scope=SCOPE) == Versioned(b"uno", second.version)
    assert await store.get("/a/2", scope=SCOPE) is None
    assert await scanned(store, "/a/", "/a/~") == ["/a/1"]


async def test_deleting_an_absent_key_does_nothing(store: MetadataStore) -> None:
    await store.commit(SCOPE, [], [Delete("/a/1"), Put("/a/2", b"x")])
    assert await scanned(store, "/a/", "/a/~") == ["/a/2"]


async def test_a_scope_sees_only_its_own_keys(store: MetadataStore) -> None:
    await put(store, "/a/1", scope="one")
    await put(store, "/a/2", scope="two")
    assert await scanned(store, "/a/", "/a/~", scope="one") == ["/a/1"]
    assert await store.get("/a/1", scope="two") is None
    found = await store.ceiling("/a/2", scope="one")
    assert found is None


async def test_ceiling_is_the_first_key_at_or_after(store: MetadataStore) -> None:
    version = await put(store, "/a/10", "/a/20", "/b/05")
    assert await store.ceiling("/a/10", scope=SCOPE) == KeyValue("/a/10", b"/a/10", version)
    assert await store.ceiling("/a/11", scope=SCOPE) == KeyValue("/a/20", b"/a/20", version)
    assert await store.ceiling("/a/21", scope=SCOPE) == KeyValue("/b/05", b"/b/05", version)
    assert await store.ceiling("/b/06", scope=SCOPE) is None
    await store.commit(SCOPE, [], [Delete("/a/20")])
    found = await store.ceiling("/a/11", scope=SCOPE)
    assert found is not None
    assert found.key == "/b/05"


async def test_scan_is_ordered_and_excludes_its_end(store: MetadataStore) -> None:
    await put(store, "/a/3", "/a/1", "/a/2", "/b/1")
    assert await scanned(store, "/a/1", "/a/3") == ["/a/1", "/a/2"]
    assert await scanned(store, "/a/2", "/b/1") == ["/a/2", "/a/3"]
    assert await scanned(store, "/a/", "/b/~") == ["/a/1", "/a/2", "/a/3", "/b/1"]
    assert await scanned(store, "/a/3", "/a/3") == []
    assert await scanned(store, "/a/3", "/a/1") == []


async def test_scan_in_reverse_and_with_a_limit(store: MetadataStore) -> None:
    await put(store, "/a/1", "/a/2", "/a/3", "/a/4")
    assert await scanned(store, "/a/1", "/a/4", reverse=True) == ["/a/3", "/a/2", "/a/1"]
    assert await scanned(store, "/a/1", "/a/4", limit=2) == ["/a/1", "/a/2"]
    assert await scanned(store, "/a/1", "/a/4", limit=1, reverse=True) == ["/a/3"]
    assert await scanned(store, "/a/1", "/a/4", limit=0) == []
    assert await scanned(store, "/a/1", "/a/4", limit=9) == ["/a/1", "/a/2", "/a/3"]


async def test_scan_of_many_pages_misses_and_repeats_nothing(store: MetadataStore) -> None:
    keys = [f"/a/{number:05}" for number in range(1030)]
    await put(store, *keys)
    assert await scanned(store, "/a/", "/a/~") == keys
    assert await scanned(store, "/a/", "/a/~", reverse=True) == keys[::-1]
    assert await scanned(store, "/a/", "/a/~", limit=700) == keys[:700]
    assert await scanned(store, "/a/", "/a/~", limit=512, reverse=True) == keys[:-513:-1]


async def test_a_range_holds_keys_of_its_own_depth_only(store: MetadataStore) -> None:
    await put(store, "/a", "/a/b", "/a/b/c", "/a/b2", "/a/b/d/e")
    assert await scanned(store, "/a/", "/a/~") == ["/a/b", "/a/b2"]
    found = await store.ceiling("/a/b3", scope=SCOPE)
    assert found is None
    with pytest.raises(ValueError, match="depth"):
        await scanned(store, "/a/", "/b")


async def test_scan_may_be_left_early(store: MetadataStore) -> None:
    await put(store, *(f"/a/{number:05}" for number in range(600)))
    async for row in store.scan("/a/", "/a/~", scope=SCOPE):
        assert row.key == "/a/00000"
        break
    await put(store, "/b/1")


async def test_commits_may_run_between_the_pages_of_a_scan(store: MetadataStore) -> None:
    keys = [f"/a/{number:05}" for number in range(600)]
    await put(store, *keys)
    seen: list[str] = []
    async for row in store.scan("/a/", "/a/~", scope=SCOPE):
        seen.append(row.key)
        if len(seen) == 1:
            await store.commit(SCOPE, [], [Delete("/a/00000"), Put("/a/00000x", b"")])
    assert [key for key in seen if key != "/a/00000x"] == keys


async def test_a_check_of_absence(store: MetadataStore) -> None:
    await store.commit(SCOPE, [Check("/a/1", None)], [Put("/a/1", b"first")])
    with pytest.raises(Conflict):
        await store.commit(SCOPE, [Check("/a/1", None)], [Put("/a/1", b"second")])
    found = await store.get("/a/1", scope=SCOPE)
    assert found is not None
    assert found.value == b"first"
    await store.commit(SCOPE, [], [Delete("/a/1")])
    await store.commit(SCOPE, [Check("/a/1", None)], [Put("/a/1", b"third")])


async def test_a_check_of_a_version(store: MetadataStore) -> None:
    first = await put(store, "/a/1")
    second = await store.commit(SCOPE, [Check("/a/1", first)], [Put("/a/1", b"2")])
    for stale in (first, second.version + 1, None):
        with pytest.raises(Conflict):
            await store.commit(SCOPE, [Check("/a/1", stale)], [Put("/a/1", b"x")])
    with pytest.raises(Conflict):
        await store.commit(SCOPE, [Check("/a/2", second.version)], [Put("/a/2", b"x")])
    assert await store.get("/a/1", scope=SCOPE) == Versioned(b"2", second.version)


async def test_one_failed_check_stops_every_write(store: MetadataStore) -> None:
    version = await put(store, "/a/1", "/a/2")
    checks = [Check("/a/1", version), Check("/a/2", version), Check("/a/3", version)]
    writes: list[Put | Delete] = [Put("/a/1", b"x"), Delete("/a/2"), Put("/a/4", b"x")]
    with pytest.raises(Conflict):
        await store.commit(SCOPE, checks, writes)
    rows = [row async for row in store.scan("/a/", "/a/~", scope=SCOPE)]
    assert rows == [KeyValue(key, key.encode(), version) for key in ("/a/1", "/a/2")]


async def test_checks_may_name_keys_that_are_not_written(store: MetadataStore) -> None:
    version = await put(store, "/lease/1")
    await store.commit(SCOPE, [Check("/lease/1", version)], [Put("/a/1", b"x")])
    assert await store.get("/lease/1", scope=SCOPE) == Versioned(b"/lease/1", version)
    await store.commit(SCOPE, [Check("/lease/1", version)], [])
    with pytest.raises(Conflict):
        await store.commit(SCOPE, [Check("/lease/1", version + 1)], [])


async def test_versions_grow_and_are_never_used_again(store: MetadataStore) -> None:
    versions = []
    for _ in range(5):
        versions.append(await put(store, "/a/1"))
        versions.append((await store.commit(SCOPE, [], [Delete("/a/1")])).version)
        with pytest.raises(Conflict):
            await store.commit(SCOPE, [Check("/a/1", versions[-2])], [Put("/a/1", b"x")])
    assert versions == sorted(set(versions))


async def test_concurrent_increments_lose_none(under_test: StoreUnderTest) -> None:
    clients = [await under_test.client() for _ in range(2)]
    await clients[0].commit(SCOPE, [], [Put("/counter/1", b"0")])
    conflicts = 0

    async def increment(store: MetadataStore, times: int) -> None:
        nonlocal conflicts
        while times:
            found = await store.get("/counter/1", scope=SCOPE)
            assert found is not None
            check = Check("/counter/1", found.version)
            value = str(int(found.value) + 1).encode()
            try:
                await store.commit(SCOPE, [check], [Put("/counter/1", value)])
            except Conflict:
                conflicts += 1
            else:
                times -= 1

    await asyncio.gather(*(increment(clients[number % 2], 10) for number in range(8)))
    found = await clients[1].get("/counter/1", scope=SCOPE)
    assert found is not None
    assert found.value == b"80"
    assert conflicts > 0, "the writers never met: this proved nothing"


async def test_of_racing_creators_one_wins(under_test: StoreUnderTest) -> None:
    clients = [await under_test.client() for _ in range(2)]
    commits = [
        clients[number % 2].commit(
            SCOPE,
            [Check("/a/owner", None)],
            [Put("/a/owner", str(number).encode()), Put(f"/b/{number}", b"")],
        )
        for number in range(10)
    ]
    results = await asyncio.gather(*commits, return_exceptions=True)
    winners = [number for number, result in enumerate(results) if isinstance(result, tuple)]
    assert sum(isinstance(result, Conflict) for result in results) == 9
    found = await clients[0].get("/a/owner", scope=SCOPE)
    assert found is not None
    assert [str(number).encode() for number in winners] == [found.value]
    assert await scanned(clients[1], "/b/", "/b/~") == [f"/b/{winners[0]}"]


async def test_concurrent_commits_each_get_their_own_version(store: MetadataStore) -> None:
    versions = await asyncio.gather(*(put(store, f"/a/{number}") for number in range(40)))
    assert len(set(versions)) == 40
    for number, version in enumerate(versions):
        found = await store.get(f"/a/{number}", scope=SCOPE)
        assert found is not None
        assert found.version == version


async def test_an_answered_commit_is_seen_by_every_client(under_test: StoreUnderTest) -> None:
    writer, reader = await under_test.client(), await under_test.client()
    for number in range(20):
        assert await reader.get(f"/a/{number}", scope=SCOPE) is None
        version = await put(writer, f"/a/{number}")
        found = await reader.get(f"/a/{number}", scope=SCOPE)
        assert found == Versioned(f"/a/{number}".encode(), version)
        assert len(await scanned(reader, "/a/", "/a/~")) == number + 1


async def test_a_value_of_a_megabyte(store: MetadataStore) -> None:
    value = bytes(range(256)) * 4096
    await store.commit(SCOPE, [], [Put(f"/a/{number}", value) for number in range(3)])
    rows = [row async for row in store.scan("/a/", "/a/~", scope=SCOPE)]
    assert [row.key for row in rows] == ["/a/0", "/a/1", "/a/2"]
    assert all(row.value == value for row in rows)
    found = await store.get("/a/1", scope=SCOPE)
    assert found is not None
    assert found.value == value


async def test_a_commit_of_a_thousand_keys(store: MetadataStore) -> None:
    keys = [f"/a/{number:04}" for number in range(1000)]
    version = await put(store, *keys)
    checks = [Check(key, version) for key in keys]
    await store.commit(SCOPE, checks, [Delete(key) for key in keys[1:]])
    assert await scanned(store, "/a/", "/a/~") == keys[:1]


async def test_every_legal_character_in_a_key(store: MetadataStore) -> None:
    characters = [chr(code) for code in range(1, 256) if chr(code) != "/"]
    characters += ["\u07ff", "\u0800", "\uffff", "\U00010000", "\U0010ffff"]
    keys = [f"/a/{character}" for character in characters]
    await put(store, *keys)
    rows = [row async for row in store.scan("/a/", "/b/", scope=SCOPE)]
    assert [row.key for row in rows] == sorted(keys, key=str.encode)
    assert all(row.value == row.key.encode() for row in rows)


@pytest.mark.parametrize("key", ["", "/a/\0", "/a/\ud800"])
async def test_an_illegal_key_is_refused(store: MetadataStore, key: str) -> None:
    with pytest.raises(ValueError):
        await store.commit(SCOPE, [], [Put("/a/1", b"x"), Put(key, b"x")])
    with pytest.raises(ValueError):
        await store.get(key, scope=SCOPE)
    assert await scanned(store, "/a/", "/a/~") == []


async def test_a_commit_writes_no_key_twice(store: MetadataStore) -> None:
    with pytest.raises(ValueError, match="twice"):
        await store.commit(SCOPE, [], [Put("/a/1", b"x"), Delete("/a/1")])
    assert await store.get("/a/1", scope=SCOPE) is None


async def test_after_close_nothing_is_served(under_test: StoreUnderTest) -> None:
    store = await under_test.client()
    version = await put(store, "/a/1")
    await store.close()
    await store.close()
    with pytest.raises(Unavailable):
        await store.get("/a/1", scope=SCOPE)
    with pytest.raises(Unavailable):
        await put(store, "/a/1")
    with pytest.raises(Unavailable):
        await store.session(10)
    successor = await under_test.client()
    assert await successor.get("/a/1", scope=SCOPE) == Versioned(b"/a/1", version)


@pytest.mark.parametrize(
    ("fault", "applied"), [(Fault.LOST_ANSWER, True), (Fault.LOST_REQUEST, False)]
)
async def test_an_unknown_outcome_is_resolved_by_reading_a_witness(
    store: MetadataStore, fault: Fault, applied: bool
) -> None:
    await put(store, "/marker/7")
    faulty = FaultyStore(store)
    faulty.fail_commits(fault)
    with pytest.raises(CommitUnknown):
        await faulty.commit(SCOPE, [], [Put("/object/7", b"base 100"), Delete("/marker/7")])
    marker = await faulty.get("/marker/7", scope=SCOPE)
    witness = await faulty.get("/object/7", scope=SCOPE)
    assert (marker is None, witness is not None) == (applied, applied)


async def test_an_unavailable_store_applied_nothing_and_can_be_retried(
    store: MetadataStore,
) -> None:
    faulty = FaultyStore(store)
    faulty.fail_commits(Fault.UNAVAILABLE, when=lambda scope, writes: scope == SCOPE)
    await put(faulty, "/other/1", scope="other")
    with pytest.raises(Unavailable):
        await put(faulty, "/a/1")
    assert await faulty.get("/a/1", scope=SCOPE) is None
    await put(faulty, "/a/1")
    faulty.fail_reads()
    with pytest.raises(Unavailable):
        await faulty.get("/a/1", scope=SCOPE)
    assert await faulty.get("/a/1", scope=SCOPE) is not None


async def test_a_held_commit_is_not_applied_until_released(store: MetadataStore) -> None:
    faulty = FaultyStore(store)
    faulty.hold_commits()
    commit = asyncio.create_task(put(faulty, "/a/1"))
    while not faulty.commits_held:
        await asyncio.sleep(0)
    assert await faulty.get("/a/1", scope=SCOPE) is None
    faulty.release_commits()
    version = await commit
    assert await faulty.get("/a/1", scope=SCOPE) == Versioned(b"/a/1", version)
