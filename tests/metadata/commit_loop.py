"""A process that commits until it is killed: each commit raises a counter and adds two rows.

Usage: python -m tests.metadata.commit_loop FILE FIRST. Prints every number that was acknowledged.
"""

from __future__ import annotations

import asyncio
import sys

from metadata.sqlite import SqliteStore
from metadata.store import Put

SCOPE = "loop"


async def main(path: str, first: int) -> None:
    store = await SqliteStore.open(path)
    session = await store.session(10)
    await session.put("/alive/1", b"", scope=SCOPE)

    async def commit(number: int) -> None:
        value = str(number).encode() * 100
        await store.commit(
            SCOPE,
            [],
            [Put(f"/left/{number:09}", value), Put(f"/right/{number:09}", value)],
        )
        print(number, flush=True)

    number = first
    while True:  # several at once, so that a kill also meets commits that share a transaction
        await asyncio.gather(*(commit(number + each) for each in range(4)))
        number += 4


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
