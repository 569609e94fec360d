"""Requests that are valid but strange: well-formed bytes, plausible names, odd values.

Names, ids and numbers come from small pools, so that requests meet things that exist (or have
existed) rather than only things that nobody has heard of.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from protocol.schema import FieldSpec, field_specs
from tests.protocol.building import batch, record
from tests.protocol.entities import VALUES

TOPICS = ("strange", "odd.one", "compacted")
GROUPS = ("strange-group", "odd/group", "")
UNKNOWN_ID = UUID(int=1)

_NAMES = st.sampled_from(
    (*TOPICS, *GROUPS, "no-such-topic", ".", "..", "a" * 250, "with space", "ünïcode", "\x00", "%s")
) | st.text(max_size=10)
_CONFIGS = st.sampled_from(
    (
        *("retention.ms", "cleanup.policy", "compression.type", "max.message.bytes", "segment.ms"),
        *("log.retention.ms", "message.max.bytes", "num.partitions", "producer_byte_rate"),
        *("consumer.session.timeout.ms", "interval.ms", "user", "client-id", "ip", "nonsense"),
    )
)
_CONFIG_VALUES = st.sampled_from(
    (
        "",
        "-1",
        "0",
        "1",
        "1000",
        "delete",
        "compact,delete",
        "zstd",
        "true",
        "1e3",
        "nonsense",
        "9" * 30,
    )
)
_PROTOCOLS = st.sampled_from(("consumer", "connect", "range", "uniform", "roundrobin", ""))
_MEMBERS = st.sampled_from(("", "member-1", "member-2", "instance-1", "a b c"))

_STRINGS = st.one_of(_NAMES, _CONFIGS, _CONFIG_VALUES, _PROTOCOLS, _MEMBERS)


def _whole(bits: int) -> st.SearchStrategy[int]:
    high = 2 ** (bits - 1) - 1
    usual = st.sampled_from((-3, -2, -1, 0, 1, 2, 3, 5, 100))
    return usual | st.sampled_from((high, -high - 1, high - 1)) | st.integers(-high - 1, high)


_BATCHES = st.sampled_from(
    (
        batch(),
        batch([record(0, key=None), record(1)]),
        batch([record(0)], codec=1),
        batch([record(0)], codec=4),
        batch([record(0)], producer_id=1, producer_epoch=0, base_sequence=0),
        batch([record(0)], crc=7),
        batch([record(0)], attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0),
        batch([record(0)], magic=1),
        batch([record(0)]) * 2,
        b"",
        b"short",
    )
)

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **VALUES,
    "int8": _whole(8),
    "int16": _whole(16),
    "int32": _whole(32),
    "int64": _whole(64),
    "string": _STRINGS,
    "bytes": st.sampled_from((b"", b"bytes", bytes(300))),
    "records": _BATCHES | st.binary(max_size=100),
    # Short, or else requests that wait do so.
    "timedelta_i32": st.sampled_from((-1, 0, 1, 20)).map(lambda ms: timedelta(milliseconds=ms)),
}

# Fields whose values are mostly taken from a pool of their own.
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "topic": _NAMES,
    "group_id": st.sampled_from(GROUPS) | _NAMES,
    "member_id": _MEMBERS,
    "instance_id": _MEMBERS,
    "acks": st.sampled_from((-1, 1, 0, 2)),
    "protocol_type": _PROTOCOLS,
    "session_timeout": st.sampled_from((0, 6000, 10_000)).map(
        lambda ms: timedelta(milliseconds=ms)
    ),
    "rebalance_timeout": st.sampled_from((0, 20)).map(lambda ms: timedelta(milliseconds=ms)),
    "max_wait": st.sampled_from((0, 20)).map(lambda ms: timedelta(milliseconds=ms)),
    "resource_type": st.sampled_from((0, 1, 2, 4, 8, 16, 32, 64)),
    "key_type": st.sampled_from((0, 1, 2, 3)),
    "config_operation": st.integers(-1, 4),
    "count": st.sampled_from((-1, 0, 1, 2, 3, 4, 2**31 - 1)),
    "num_partitions": st.sampled_from((-2, -1, 0, 1, 2, 3, 2**31 - 1)),
}


def _values(spec: FieldSpec, topic_ids: tuple[UUID, ...]) -> st.SearchStrategy[Any]:
    if spec.entity is not None:
        values = strange(spec.entity, topic_ids)
    elif spec.kafka_type == "uuid":
        values = st.sampled_from((None, UNKNOWN_ID, *topic_ids))
    else:
        values = _BY_NAME.get(spec.name, _VALUES[spec.kafka_type or ""])
    if spec.is_array:
        values = st.lists(values, max_size=3).map(tuple)
    values = st.none() | values if spec.nullable else values
    return values if spec.tag is None else st.just(spec.default) | values


def strange(cls: Any, topic_ids: tuple[UUID, ...]) -> st.SearchStrategy[Any]:
    """Strange messages of one class. `topic_ids` are those of topics that exist."""
    return st.builds(cls, **{spec.name: _values(spec, topic_ids) for spec in field_specs(cls)})
