"""The configuration of topics: which keys there are, what they may hold, what they mean here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from drayd.config import Settings
from protocol.compression import Compression
from protocol.errors import ErrorCode, KafkaError

TimestampType = Literal["CreateTime", "LogAppendTime"]

_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


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


def _whole(low: int, high: int) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        try:
            # int() also takes what Kafka doesn't: 1_000, and the digits of other scripts.
            value = int(text if _NUMBER.fullmatch(text) else "")
        except ValueError:
            return "Not a number of type INT" if high <= INT_MAX else "Not a number of type LONG"
        if value < low:
            return f"Value must be at least {low}"
        return None if value <= high else f"Value must be no more than {high}"

    return check


def _fraction(text: str) -> str | None:
    try:
        value = float(text)
    except ValueError:
        return "Not a number of type DOUBLE"
    if value < 0:
        return "Value must be at least 0"
    return None if value <= 1 else "Value must be no more than 1"


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    def check(text: str) -> str | None:
        return None if text in allowed else f"String must be one of: {', '.join(allowed)}"

    return check


def _policy(text: str) -> str | None:
    parts = [part.strip() for part in text.split(",")] if text else []
    if all(part in ("delete", "compact") for part in parts):
        return None
    return "String must be one of: compact, delete"


def _boolean(text: str) -> str | None:
    return None if text in ("true", "false") else "Expected value to be either true or false"


# Kafka's topic configurations. What Dray has no use for (segments, flushes, replicas) is taken,
# checked and kept, so that tools which set it don't stumble.
KEYS: Mapping[str, Callable[[str], str | None]] = {
    "cleanup.policy": _policy,
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.gzip.level": _whole(-1, 9),
    "compression.lz4.level": _whole(1, 17),
    "compression.zstd.level": _whole(-131072, 22),
    "delete.retention.ms": _whole(0, LONG_MAX),
    "file.delete.delay.ms": _whole(0, LONG_MAX),
    "flush.messages": _whole(1, LONG_MAX),
    "flush.ms": _whole(0, LONG_MAX),
    "index.interval.bytes": _whole(0, INT_MAX),
    "max.compaction.lag.ms": _whole(1, LONG_MAX),
    "max.message.bytes": _whole(0, INT_MAX),
    "message.timestamp.after.max.ms": _whole(0, LONG_MAX),
    "message.timestamp.before.max.ms": _whole(0, LONG_MAX),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _fraction,
    "min.compaction.lag.ms": _whole(0, LONG_MAX),
    "min.insync.replicas": _whole(1, INT_MAX),
    "preallocate": _boolean,
    "retention.bytes": _whole(-(2**63), LONG_MAX),
    "retention.ms": _whole(-1, LONG_MAX),
    "segment.bytes": _whole(1024 * 1024, INT_MAX),
    "segment.index.bytes": _whole(4, INT_MAX),
    "segment.jitter.ms": _whole(0, LONG_MAX),
    "segment.ms": _whole(1, LONG_MAX),
    "unclean.leader.election.enable": _boolean,
}


def check(config: Mapping[str, str | None]) -> dict[str, str]:
    """The configuration to store; KafkaError(INVALID_CONFIG) names what is wrong."""
    checked: dict[str, str] = {}
    for name, value in config.items():
        validate = KEYS.get(name)
        if validate is None:
            raise KafkaError(ErrorCode.invalid_config, f"Unknown topic config name: {name}")
        if value is None:
            raise KafkaError(
                ErrorCode.invalid_config, f"Null value not supported for topic configs: {name}"
            )
        problem = validate(value)
        if problem is not None:
            raise KafkaError(
                ErrorCode.invalid_config,
                f"Invalid value {value} for configuration {name}: {problem}",
            )
        checked[name] = value
    return checked


def limits(settings: Settings, config: Mapping[str, str]) -> TopicLimits:
    kind = config.get("message.timestamp.type", settings.log_message_timestamp_type)
    before = config.get("message.timestamp.before.max.ms")
    after = config.get("message.timestamp.after.max.ms")
    size = config.get("max.message.bytes")
    codec = _CODECS.get(config.get("compression.type", "producer"))
    level = None if codec is None else config.get(f"compression.{codec.name.lower()}.level")
    return TopicLimits(
        max_message_bytes=settings.message_max_bytes if size is None else int(size),
        timestamp_type="LogAppendTime" if kind == "LogAppendTime" else "CreateTime",
        before_max_ms=(
            settings.log_message_timestamp_before_max_ms if before is None else int(before)
        ),
        after_max_ms=settings.log_message_timestamp_after_max_ms if after is None else int(after),
        require_key="compact" in config.get("cleanup.policy", ""),
        codec=codec,
        codec_level=None if level is None else int(level),
    )
