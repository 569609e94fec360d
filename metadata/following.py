"""Keeping what is held in memory current with what others write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from metadata.store import Change, Gap, StoreError, Watch

RETRY_S = 0.2


async def follow(watch: Watch, take: Callable[[Change | Gap], Awaitable[None]]) -> None:
    """Gives every change to `take`, in order and until it could be taken: where the store can't
    be read, again after a while. Runs until cancelled; closes the watch."""
    try:
        async for change in watch:
            while not await _taken(change, take):
                await asyncio.sleep(RETRY_S)
    finally:
        await watch.close()


async def _taken(change: Change | Gap, take: Callable[[Change | Gap], Awaitable[None]]) -> bool:
    try:
        await take(change)
    except StoreError:
        return False
    return True
