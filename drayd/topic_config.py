"""The configuration of topics: what a new one may hold, and what it means to produce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from drayd.configs.brokers import BrokerView
from drayd.configs.topic_keys import TOPIC_KEYS
from drayd.configs.values import BadValue, Value
from protocol.compression import Compression
from protocol.errors import ErrorCode, KafkaError

TimestampType = Literal["CreateTime", "LogAppendTime"]

# The order in which Kafka looks at values: of several bad ones it names the first.
_ORDER = [
    "segment.bytes",
    "segment.ms",
    "segment.jitter.ms",
    "segment.index.bytes",
    "flush.messages",
    "flush.ms",
    "retention.bytes",
    "retention.ms",
    "max.message.bytes",
    "index.interval.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "min.cleanable.dirty.ratio",
    "cleanup.policy",
    "unclean.leader.election.enable",
    "min.insync.replicas",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "preallocate",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "remote.storage.enable",
    "local.retention.ms",
    "local.retention.bytes",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "internal.segment.bytes",
]


class TopicLimits(NamedTuple):
    """What produce needs to know of a topic."""

    max_message_bytes: int
    timestamp_type: TimestampType
    before_max_ms: int
    after_max_ms: int
    require_key: bool
    codec: Compression | None = None
    """What batches are packed with; None: as the producer packed them."""
    codec_level: int | None = None


_CODECS = {
    "uncompressed": Compression.NONE,
    **{codec.name.lower(): codec for codec in Compression if codec is not Compression.NONE},
}
# Codecs that can try more or less hard.
_LEVELS = {
    Compression.GZIP: "compression.gzip.level",
    Compression.LZ4: "compression.lz4.level",
    Compression.ZSTD: "compression.zstd.level",
}
_GZIP_DEFAULT = -1


def check(config: Mapping[str, str | None]) -> dict[str, str]:
    """The configuration to store; KafkaError(INVALID_CONFIG) names what is wrong."""
    missing = [name for name, value in config.items() if value is None]
    if missing:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Null value not supported for topic configs: {','.join(missing)}",
        )
    wanted = {name: value for name, value in config.items() if value is not None}
    try:
        check_values(wanted)
    except BadValue as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from None
    return wanted


def check_values(config: Mapping[str, str]) -> None:
    """BadValue names what is wrong."""
    for name in config:
        if name not in TOPIC_KEYS:
            raise BadValue(f"Unknown topic config name: {name}")
    values: dict[str, Value] = {
        name: TOPIC_KEYS[name].parse(config.get(name, TOPIC_KEYS[name].default))
        for name in _ORDER
        if name in config or not TOPIC_KEYS[name].hidden
    }
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise BadValue(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})"
        )
    if values["remote.storage.enable"]:
        raise BadValue(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def limits(view: BrokerView, config: Mapping[str, str]) -> TopicLimits:
    def value(name: str) -> Value:
        key = TOPIC_KEYS[name]
        own = config.get(name)
        return key.parse(view.topic_default(key) if own is None else own)

    def number(name: str) -> int:
        found = value(name)
        assert isinstance(found, int)
        return found

    policy = value("cleanup.policy")
    codec = _CODECS.get(str(value("compression.type")))
    level = number(_LEVELS[codec]) if codec in _LEVELS else None
    if codec is Compression.GZIP and level == _GZIP_DEFAULT:
        level = None
    return TopicLimits(
        max_message_bytes=number("max.message.bytes"),
        timestamp_type=(
            "LogAppendTime" if value("message.timestamp.type") == "LogAppendTime" else "CreateTime"
        ),
        before_max_ms=number("message.timestamp.before.max.ms"),
        after_max_ms=number("message.timestamp.after.max.ms"),
        require_key=isinstance(policy, tuple) and "compact" in policy,
        codec=codec,
        codec_level=level,
    )
