"""What names a WAL object: its staging marker, its record, or its garbage entry.

An object's life moves through these one way only: marker placed → object written → record (or
garbage entry) committed while the marker is open → garbage entry → nothing. Hence the order of
questions, and it matters:

1. Is the marker open? Once it was seen fenced or gone, the object can't be committed any more,
   because every commit checks the marker's version, and a marker never comes back.
2. Is there a record? Asked before 1 the answer would prove nothing: the object might be
   committed, and its marker removed, between the two.
3. Is there a garbage entry? Asked before 2 it would miss a record that turns into garbage
   between the two.
"""

from __future__ import annotations

import logging
from typing import TypeVar
from uuid import UUID

import msgspec

from metadata import keys
from metadata.store import MetadataStore
from metadata.values import Marker, UnknownFormat, decode

log = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)

_NUMBER_BYTES = 4
"""The end of a WAL id counts the objects of its range (`metadata.streams.wal_id`)."""


def readable(kind: type[T], key: str, value: bytes) -> T | None:
    """The value, or None for one that a newer Dray has written, or that is damaged. It is left
    alone, and stands in nobody's way."""
    try:
        return decode(kind, value)
    except (UnknownFormat, msgspec.MsgspecError) as error:
        log.warning("%s can't be read and is left alone: %s", key, error)
        return None


def range_of(wal_id: UUID) -> UUID:
    """The base of the range that an id belongs to."""
    return UUID(bytes=wal_id.bytes[:-_NUMBER_BYTES] + bytes(_NUMBER_BYTES))


def marker_of(domain: int, wal_id: UUID) -> str:
    """The key of the only marker that can cover an id: markers are named by their base."""
    return keys.marker(domain, range_of(wal_id).hex)


async def marker_is_open(store: MetadataStore, domain: int, wal_id: UUID) -> bool:
    """Whether the object may still be committed. Once False, False for ever."""
    key = marker_of(domain, wal_id)
    found = await store.get(key, scope=keys.domain_scope(domain))
    if found is None:
        return False
    marker = readable(Marker, key, found.value)
    return marker is None or not marker.fenced_ms


async def named_ids(store: MetadataStore, domain: int, first: UUID, last: UUID) -> set[UUID]:
    """The ids in [first, last] that have a record or a garbage entry, records asked first."""
    scope = keys.domain_scope(domain)
    named = set()
    for prefix, key_of in (
        (keys.wal_objects(domain), keys.wal_object),
        (keys.garbage(domain), keys.garbage_object),
    ):
        beyond = last.int + 1
        end = key_of(domain, UUID(int=beyond)) if beyond < 1 << 128 else keys.end_of(prefix)
        async for item in store.scan(key_of(domain, first), end, scope=scope):
            named.add(keys.wal_id_of(item.key))
    return named
