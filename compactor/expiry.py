"""Forgets idempotent producers that wrote nothing for `producer.id.expiration.ms`.

A commit takes an expired state for none, so removing it changes no answer; it only keeps short-
lived producers from filling the store. Each removal is conditional on the version that was read:
a producer that has written meanwhile stays.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from metadata import keys
from metadata.store import Check, Conflict, Delete, KeyValue, MetadataStore
from metadata.values import ProducerState, StreamHead, StreamRef, decode

log = logging.getLogger(__name__)

PIECE = 32
MAX_EXPIRED = 20_000
"""Of one domain, in one round."""
_MAX_STREAM_ID = 2**64 - 1


class HeadOf(NamedTuple):
    ref: StreamRef
    head: StreamHead


async def heads_of(store: MetadataStore, domain: int) -> AsyncIterator[HeadOf]:
    """Every stream of a domain. Heads have a depth of their own, so nothing else is read."""
    async for item in store.scan(
        keys.stream_head(domain, 0),
        keys.stream_head(domain, _MAX_STREAM_ID),
        scope=keys.domain_scope(domain),
    ):
        stream_id = int(item.key.rsplit("/", 2)[1])
        yield HeadOf(StreamRef(stream_id, domain), decode(StreamHead, item.value))


async def expire_producers(
    store: MetadataStore, streams: Sequence[StreamRef], *, now_ms: int, expiration_ms: int
) -> int:
    """The number of states removed."""
    expired = 0
    for ref in streams:
        piece: list[KeyValue] = []
        prefix = keys.producers(ref.domain, ref.stream_id)
        scope = keys.domain_scope(ref.domain)
        async for item in store.scan(prefix, keys.end_of(prefix), scope=scope):
            if decode(ProducerState, item.value).updated_ms + expiration_ms < now_ms:
                piece.append(item)
            if len(piece) == PIECE:
                expired += await _remove(store, scope, piece)
                piece = []
        expired += await _remove(store, scope, piece)
        if expired >= MAX_EXPIRED:
            break
    return expired


async def _remove(store: MetadataStore, scope: str, piece: Sequence[KeyValue]) -> int:
    if not piece:
        return 0
    checks = [Check(item.key, item.version) for item in piece]
    try:
        await store.commit(scope, checks, [Delete(item.key) for item in piece])
    except Conflict:
        log.debug("a producer came back, or somebody else removed it; the rest waits")
        return 0
    return len(piece)
