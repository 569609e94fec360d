"""Deleting objects, a few at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice

from wal.objectstore import ObjectStore, ObjectStoreError

log = logging.getLogger(__name__)

SIDE_BY_SIDE = 4
"""Deletes in flight: few, because they share threads and connections with PUTs."""


async def delete_objects(objects: ObjectStore, paths: Sequence[str]) -> set[str]:
    """Returns the paths that are gone, absent ones included. What can't be deleted is logged
    and left out; when a whole handful fails, the store is taken to be down and the rest isn't
    tried."""
    gone: set[str] = set()
    rest = iter(paths)
    while handful := list(islice(rest, SIDE_BY_SIDE)):
        results = await asyncio.gather(*(_delete(objects, path) for path in handful))
        gone.update(path for path, deleted in zip(handful, results, strict=True) if deleted)
        if not any(results):
            break
    return gone


async def _delete(objects: ObjectStore, path: str) -> bool:
    try:
        await objects.delete(path)
    except ObjectStoreError as error:
        log.warning("an object couldn't be deleted yet: %s", error)
        return False
    return True
