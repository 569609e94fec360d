"""The configurations of a group that Kafka 4.3 has: of consumer, share and streams groups.

Dray runs consumer groups. The keys of the other kinds are taken, checked, kept and shown, so that
tools which list or set them don't stumble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drayd.configs.checks import Check, anything, at_least, offset_reset, one_of
from drayd.configs.keys import Key, table
from drayd.configs.values import BadValue, Type


def _int(name: str, default: int, doc: str, low: int = 1) -> Key:
    return Key(name, Type.INT, str(default), doc, at_least(low), f"group.{name}")


def _text(name: str, kind: Type, default: str, doc: str, check: Check = anything) -> Key:
    return Key(name, kind, default, doc, check)


GROUP_KEYS: Mapping[str, Key] = table(
    _int(
        "consumer.assignment.interval.ms",
        1000,
        "The least time between two assignments of a consumer group.",
        0,
    ),
    _int(
        "consumer.heartbeat.interval.ms",
        5000,
        "How often the members of a consumer group are told to send heartbeats.",
    ),
    _int(
        "consumer.session.timeout.ms",
        45000,
        "A member of a consumer group that is silent for this long is removed.",
    ),
    _int(
        "share.assignment.interval.ms",
        1000,
        "The least time between two assignments of a share group.",
        0,
    ),
    _text(
        "share.auto.offset.reset",
        Type.STRING,
        "latest",
        "Where a share group begins in a partition that is new to it.",
        offset_reset,
    ),
    _int("share.delivery.count.limit", 5, "How often a share group tries to deliver a record.", 2),
    _int(
        "share.heartbeat.interval.ms",
        5000,
        "How often the members of a share group are told to send heartbeats.",
    ),
    _text(
        "share.isolation.level",
        Type.STRING,
        "read_uncommitted",
        "Whether a share group sees records of transactions that are not committed.",
        one_of("read_committed", "read_uncommitted"),
    ),
    _int(
        "share.partition.max.record.locks",
        2000,
        "How many records of a partition a share group may have locked at a time.",
        100,
    ),
    _int(
        "share.record.lock.duration.ms",
        30000,
        "How long a share group's member may hold a record before others get it.",
        1000,
    ),
    _text(
        "share.renew.acknowledge.enable",
        Type.BOOLEAN,
        "true",
        "Whether a share group's member may prolong its hold on a record.",
    ),
    _int(
        "share.session.timeout.ms",
        45000,
        "A member of a share group that is silent for this long is removed.",
    ),
    _int(
        "streams.assignment.interval.ms",
        1000,
        "The least time between two assignments of a streams group.",
        0,
    ),
    _int(
        "streams.heartbeat.interval.ms",
        5000,
        "How often the members of a streams group are told to send heartbeats.",
    ),
    _int(
        "streams.initial.rebalance.delay.ms",
        3000,
        "How long the first assignment of an empty streams group waits for more members.",
        0,
    ),
    _int(
        "streams.num.standby.replicas",
        0,
        "How many standby copies a streams group's tasks have.",
        0,
    ),
    _int(
        "streams.session.timeout.ms",
        45000,
        "A member of a streams group that is silent for this long is removed.",
    ),
)

# The bounds that Kafka's brokers set for groups, where Dray has no setting of the name.
_BOUNDS = {
    "group.share.min.assignment.interval.ms": 0,
    "group.share.max.assignment.interval.ms": 15000,
    "group.share.min.delivery.count.limit": 2,
    "group.share.max.delivery.count.limit": 10,
    "group.share.min.heartbeat.interval.ms": 5000,
    "group.share.max.heartbeat.interval.ms": 15000,
    "group.share.min.partition.max.record.locks": 100,
    "group.share.max.partition.max.record.locks": 4000,
    "group.share.min.record.lock.duration.ms": 15000,
    "group.share.max.record.lock.duration.ms": 60000,
    "group.share.min.session.timeout.ms": 45000,
    "group.share.max.session.timeout.ms": 60000,
    "group.streams.min.assignment.interval.ms": 0,
    "group.streams.max.assignment.interval.ms": 15000,
    "group.streams.min.heartbeat.interval.ms": 5000,
    "group.streams.max.heartbeat.interval.ms": 15000,
    "group.streams.max.standby.replicas": 2,
    "group.streams.min.session.timeout.ms": 45000,
    "group.streams.max.session.timeout.ms": 60000,
}
# In the order in which Kafka looks at them; what is set too low for one is named first.
_BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.num.standby.replicas",
)


def check_group(values: Mapping[str, str], broker_value: Callable[[str], str | None]) -> None:
    """BadValue says what can't be. `broker_value` gives the text of a broker's setting."""
    for name in values:
        if name not in GROUP_KEYS:
            raise BadValue(f"Unknown group config name: {name}")
    parsed = {name: GROUP_KEYS[name].parse(text) for name, text in values.items()}

    def effective(name: str) -> int:
        value = parsed.get(name)
        if value is None:
            value = int(broker_value(f"group.{name}") or GROUP_KEYS[name].default)
        assert isinstance(value, int)
        return value

    def bound(which: str, name: str) -> tuple[str, int | None]:
        kind, _, rest = name.partition(".")
        key = f"group.{kind}.{which}.{rest.removeprefix('num.')}"
        text = broker_value(key)
        return key, int(text) if text is not None else _BOUNDS.get(key)

    for name in _BOUNDED:
        low_key, low = bound("min", name)
        if low is not None and effective(name) < low:
            raise BadValue(f"{name} must be greater than or equal to {low_key}")
        high_key, high = bound("max", name)
        if high is not None and effective(name) > high:
            raise BadValue(f"{name} must be less than or equal to {high_key}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if effective(session) <= effective(heartbeat):
            raise BadValue(f"{session} must be greater than {heartbeat}")
