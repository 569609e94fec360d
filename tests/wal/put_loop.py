"""A process for `test_local_kill`: puts objects without end and prints each one's number once
its put has returned. An object's content follows from its number."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from wal.local import LocalStore

CONCURRENCY = 6


def content(number: int) -> bytes:
    rng = random.Random(number)
    return rng.randbytes(rng.choice([0, 1, 2_000, 70_000, 3_000_000]))


def path(number: int) -> str:
    return f"folder={number % 11}/{number // 50}/{number}.wo"


async def main(root: str, first: int, anonymous: bool) -> None:
    store = LocalStore.open(root, anonymous=anonymous)

    async def put_every(start: int) -> None:
        number = start
        while True:
            data = content(number)
            middle = len(data) // 2
            await store.put(path(number), [data[:middle], data[middle:]])
            os.write(1, b"%d\n" % number)
            number += CONCURRENCY

    await asyncio.gather(*(put_every(first + i) for i in range(CONCURRENCY)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "anonymous"))
