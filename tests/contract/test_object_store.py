"""What every object store does, whatever it is made of (`wal/objectstore.py`).

Runs over a local folder (with anonymous and with named temporary files) and memory; and over
the store that `DRAY_TEST_OBJECT_STORE` names (`s3://bucket/prefix`, …), if it is set.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from wal.local import LocalStore
from wal.objectstore import (
    AlreadyExists,
    Buffer,
    InvalidPath,
    NotFound,
    ObjectStore,
    open_store,
)

OWN_STORE = os.environ.get("DRAY_TEST_OBJECT_STORE")

OPENERS: dict[str, Callable[[Path], ObjectStore]] = {
    "local": lambda folder: open_store(f"file://{folder}/objects"),
    "local-named": lambda folder: LocalStore.open(f"{folder}/objects", anonymous=False),
    "memory": lambda _: open_store("memory://"),
}
if OWN_STORE:
    OPENERS["own"] = lambda _: open_store(f"{OWN_STORE}/{uuid.uuid4()}")


@pytest.fixture(params=OPENERS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    opened = OPENERS[request.param](tmp_path)
    yield opened
    await opened.close()


async def paths(store: ObjectStore, prefix: str) -> list[str]:
    return [info.path async for info in store.list(prefix)]


async def test_what_is_put_is_got(store: ObjectStore) -> None:
    parts: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"xthreex")[1:-1], b""]
    await store.put("a/b=1/c.wo", parts)
    assert await store.get("a/b=1/c.wo") == b"onetwothree"
    info = await store.head("a/b=1/c.wo")
    assert (info.path, info.size) == ("a/b=1/c.wo", 11)


async def test_modified_is_the_time_in_milliseconds(store: ObjectStore) -> None:
    await store.put("first", [b"1"])
    info = await store.head("first")
    # Between 2020 and 2100: seconds or microseconds would not be.
    assert 1_577_836_800_000 < info.modified_ms < 4_102_444_800_000


async def test_an_empty_object_exists(store: ObjectStore) -> None:
    await store.put("empty", [])
    assert await store.get("empty") == b""
    assert (await store.head("empty")).size == 0
    assert await store.get_range("empty", 0, 10) == b""


async def test_many_parts_of_many_sizes_keep_their_order(store: ObjectStore) -> None:
    parts = [bytes([i % 251]) * (i % 97) for i in range(5000)]
    parts[1500] = os.urandom(5_000_001)
    parts[1501] = os.urandom(4096)
    await store.put("large", parts)
    assert await store.get("large") == b"".join(parts)


@pytest.mark.parametrize(
    ("start", "length"),
    [(0, 10), (3, 4), (0, 3), (9, 1), (5, 100), (10, 1), (10, 0), (11, 5), (4, 0), (1000, 1000)],
)
async def test_a_range_is_cut_at_the_end(store: ObjectStore, start: int, length: int) -> None:
    await store.put("digits", [b"0123456789"])
    for _ in range(2):  # the second may come from something cached
        data = await store.get_range("digits", start, length)
        assert bytes(data) == b"0123456789"[start : start + length]


async def test_a_large_range(store: ObjectStore) -> None:
    content = os.urandom(3_000_000)
    await store.put("large", [content])
    assert bytes(await store.get_range("large", 7, 2_500_000)) == content[7 : 7 + 2_500_000]
    assert bytes(await store.get_range("large", 2_999_999, 1 << 40)) == content[-1:]
    assert bytes(await store.get_range("large", 1 << 40, 1 << 40)) == b""


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (0, -1)])
async def test_a_negative_range_is_refused(store: ObjectStore, start: int, length: int) -> None:
    await store.put("object", [b"content"])
    with pytest.raises(ValueError, match="negative"):
        await store.get_range("object", start, length)


async def test_nothing_is_overwritten(store: ObjectStore) -> None:
    await store.put("once", [b"first"])
    with pytest.raises(AlreadyExists, match="once"):
        await store.put("once", [b"second, longer"])
    assert await store.get("once") == b"first"


async def test_one_of_racing_puts_wins(store: ObjectStore) -> None:
    contents = [bytes([i]) * (20_000 + i) for i in range(12)]
    for round_number in range(5):
        path = f"race/{round_number}"
        results = await asyncio.gather(
            *(store.put(path, [content]) for content in contents), return_exceptions=True
        )
        winners = [i for i, result in enumerate(results) if result is None]
        assert len(winners) == 1
        assert all(isinstance(r, AlreadyExists) for r in results if r is not None)
        assert await store.get(path) == contents[winners[0]]


async def test_absent_objects(store: ObjectStore) -> None:
    await store.put("here/object", [b"1"])
    for path in ("nowhere", "here/other", "here"):
        with pytest.raises(NotFound, match=path):
            await store.get(path)
        with pytest.raises(NotFound, match=path):
            await store.get_range(path, 0, 1)
        with pytest.raises(NotFound, match=path):
            await store.get_range(path, 0, 0)
        with pytest.raises(NotFound, match=path):
            await store.head(path)


async def test_delete_removes_and_may_be_repeated(store: ObjectStore) -> None:
    await store.put("folder/gone", [b"1"])
    await store.put("folder/kept", [b"2"])
    assert bytes(await store.get_range("folder/gone", 0, 1)) == b"1"
    await store.delete("folder/gone")
    await store.delete("folder/gone")
    await store.delete("never/was")
    await store.delete("folder")
    with pytest.raises(NotFound):
        await store.get_range("folder/gone", 0, 1)
    assert await paths(store, "") == ["folder/kept"]


async def test_a_deleted_path_may_be_put_again(store: ObjectStore) -> None:
    await store.put("again", [b"first"])
    assert bytes(await store.get_range("again", 0, 9)) == b"first"
    await store.delete("again")
    await store.put("again", [b"second"])
    assert bytes(await store.get_range("again", 0, 9)) == b"second"


async def test_list_is_by_path_and_by_whole_segments(store: ObjectStore) -> None:
    everything = [
        "a.x",
        "a/b",
        "a/c/d",
        "a0",
        "wal/v1/domain=0/x.wo",
        "wal/v1/domain=10/x.wo",
        "wal/v1/domain=9/x.wo",
        "wal/v10/x.wo",
    ]
    for path in reversed(everything):
        await store.put(path, [path.encode()])
    listed = [info async for info in store.list("")]
    assert [info.path for info in listed] == sorted(everything)
    assert [info.size for info in listed] == [len(path) for path in sorted(everything)]
    assert await paths(store, "wal/v1") == everything[4:7]
    assert await paths(store, "wal/v1/") == everything[4:7]
    assert await paths(store, "wal/v") == []
    assert await paths(store, "a/b") == []
    assert await paths(store, "nowhere/at/all") == []


async def test_list_goes_over_many_pages(store: ObjectStore) -> None:
    names = [f"n/{i % 7}/{i:04}" for i in range(300)]
    await asyncio.gather(*(store.put(name, [b"x"]) for name in names))
    assert await paths(store, "n") == sorted(names)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../up", "a/../../up", "a/..", ".", "a/./b", "a//b", "a/", "a\0b", "a\\b"],
)
async def test_paths_that_could_escape_are_refused(store: ObjectStore, path: str) -> None:
    calls = (
        lambda: store.put(path, [b"x"]),
        lambda: store.get(path),
        lambda: store.get_range(path, 0, 1),
        lambda: store.head(path),
        lambda: store.delete(path),
    )
    for call in calls:
        with pytest.raises(InvalidPath):
            await call()
    if path.removesuffix("/") not in ("", "a"):
        with pytest.raises(InvalidPath):
            await paths(store, path)


async def test_a_cancelled_put_is_whole_or_absent(store: ObjectStore) -> None:
    content = os.urandom(2_000_000)
    for i in range(10):
        task = asyncio.create_task(store.put(f"cancelled/{i}", [content]))
        for _ in range(i):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.put("marker", [b"still works"])
    async for info in store.list("cancelled"):
        assert await store.get(info.path) == content


def test_urls_that_name_no_store() -> None:
    for url, hint in (
        ("", "file://"),
        ("/plain/path", "file://"),
        ("ftp://host/x", "s3://"),
        ("file://host/x", "file:///"),
        ("file:relative", "file:///"),
    ):
        with pytest.raises(ValueError, match=hint):
            open_store(url)


def test_a_setting_that_the_store_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="sekret"):
        open_store("s3://bucket", options={"sekret": "x"})
