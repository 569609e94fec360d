"""Every value of the metadata store: small structs behind one version byte.

Values are MessagePack arrays: a later version may add fields at the end with a default, and
old values still decode. A change that is more than that gets a new version byte.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar
from uuid import UUID

import msgspec

FORMAT = 1
_PREFIX = bytes([FORMAT])


class UnknownFormat(Exception):
    """A value was written by a Dray that is newer than this one."""


class Lifecycle(IntEnum):
    ACTIVE = 0
    DELETING = 1


class Cluster(msgspec.Struct, array_like=True, frozen=True):
    cluster_id: str
    created_ms: int


class Counter(msgspec.Struct, array_like=True, frozen=True):
    next: int


class Broker(msgspec.Struct, array_like=True, frozen=True):
    broker_id: int
    host: str
    port: int
    zone: str
    incarnation: str
    started_ms: int
    version: str
    registration: str = ""
    """Another one with every session that the broker has: what a lease is given to."""


class StreamRef(msgspec.Struct, array_like=True, frozen=True):
    """A partition's stream and the MetaDomain that it was given at creation, for good."""

    stream_id: int
    domain: int


class TopicName(msgspec.Struct, array_like=True, frozen=True):
    topic_id: UUID


class Topic(msgspec.Struct, array_like=True, frozen=True):
    topic_id: UUID
    name: str
    partitions: tuple[StreamRef, ...]
    config: dict[str, str]
    created_ms: int
    state: int = Lifecycle.ACTIVE


class Overrides(msgspec.Struct, array_like=True, frozen=True):
    """What was set for a resource: the texts as they were sent, by key."""

    values: dict[str, str]


class StreamHead(msgspec.Struct, array_like=True, frozen=True):
    """The mutable end of a stream. Every commit that touches a stream replaces its head, so
    a check of the head's version covers the stream's index and producers too."""

    topic_id: UUID
    partition: int
    log_start: int = 0
    log_end: int = 0
    total_bytes: int = 0
    """Logical batch bytes ever appended."""
    start_bytes: int = 0
    """Logical batch bytes of the entries that lie wholly below the log start."""
    max_timestamp_ms: int = -1
    max_timestamp_offset: int = -1
    """The base offset of the first batch that has `max_timestamp_ms`."""
    append_ms: int = 0
    """Broker time of the last append; never goes back."""
    leader_epoch: int = 0
    state: int = Lifecycle.ACTIVE


class Run(msgspec.Struct, array_like=True, frozen=True):
    """Accepted batches that lie side by side in the object, length prefixes included."""

    position: int
    length: int
    start_offset: int


class Point(msgspec.Struct, array_like=True, frozen=True):
    """One batch in some 64 kB: where a reader may start."""

    base_offset: int
    position: int


class IndexEntry(msgspec.Struct, array_like=True, frozen=True):
    """What one WAL object holds of one stream: offsets [start_offset, end_offset)."""

    start_offset: int
    end_offset: int
    path: str
    wal_id: UUID
    runs: tuple[Run, ...]
    points: tuple[Point, ...]
    end_bytes: int
    """The stream's `total_bytes` after this entry."""
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    running_max_timestamp_ms: int
    """The largest timestamp from the log's beginning to this entry: grows with the offset,
    so a look-up by time is a binary search."""
    append_ms: int


class ProducerBatch(msgspec.Struct, array_like=True, frozen=True):
    base_sequence: int
    last_sequence: int
    base_offset: int


class ProducerState(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    batches: tuple[ProducerBatch, ...]
    """The last five, oldest first."""
    updated_ms: int
    last_timestamp_ms: int = -1
    """The largest timestamp of the last batch; only shown."""


class Marker(msgspec.Struct, array_like=True, frozen=True):
    """Says that a broker may be writing the objects `first` … `first + count - 1`.

    The WAL id is `base` with its last four bytes replaced by the object's number."""

    broker_id: int
    incarnation: str
    base: UUID
    count: int
    zone: str
    created_ms: int
    fenced_ms: int = 0


class WalObject(msgspec.Struct, array_like=True, frozen=True):
    path: str
    size: int
    created_ms: int
    streams: tuple[int, ...]
    """The streams whose index refers to the object: a set, so removing twice does no harm."""


class Garbage(msgspec.Struct, array_like=True, frozen=True):
    path: str
    delete_after_ms: int


class Quota(msgspec.Struct, array_like=True, frozen=True):
    """The limits of one entity: names by type (`user`, `client-id`, `ip`; None is the default)."""

    entity: dict[str, str | None]
    limits: dict[str, float]


T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[msgspec.Struct]] = {}


def encode(value: msgspec.Struct) -> bytes:
    return _PREFIX + _encoder.encode(value)


def decode(kind: type[T], data: bytes) -> T:
    if data[:1] != _PREFIX:
        raise UnknownFormat(f"a {kind.__name__} has format {data[:1].hex() or 'none'}, not 01")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    value = decoder.decode(memoryview(data)[1:])
    assert isinstance(value, kind)
    return value
