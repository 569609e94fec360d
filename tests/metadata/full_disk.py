"""A process whose files may not grow beyond a limit, as on a full disk, until it is lifted.

Usage: python -m tests.metadata.full_disk FILE. Prints "recovered" if all went as it should.
"""

from __future__ import annotations

import asyncio
import resource
import sys

from metadata.sqlite import SqliteStore
from metadata.store import Put, Unavailable

SCOPE = "full"
LIMIT_BYTES = 300_000


async def main(path: str) -> None:
    store = await SqliteStore.open(path)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard_limit))
    written = 0
    try:
        for _ in range(1000):
            await store.commit(SCOPE, [], [Put(f"/a/{written:06}", bytes(5000))])
            written += 1
    except Unavailable:
        pass
    else:
        raise AssertionError("the limit was never met")
    for _ in range(3):
        try:
            await store.commit(SCOPE, [], [Put(f"/b/{each}", bytes(50_000)) for each in range(9)])
        except Unavailable:
            continue
        raise AssertionError("a commit beyond the limit succeeded")

    async def check() -> None:
        keys = [row.key async for row in store.scan("/a/", "/a/~", scope=SCOPE)]
        assert keys == [f"/a/{number:06}" for number in range(written)], "a commit is missing"
        assert [row async for row in store.scan("/b/", "/b/~", scope=SCOPE)] == []

    await check()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
    await store.commit(SCOPE, [], [Put(f"/a/{written:06}", b"after")])
    written += 1
    await check()
    await store.close()
    store = await SqliteStore.open(path)
    await check()
    await store.close()
    print("recovered")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
