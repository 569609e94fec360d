"""Topic configurations: what is taken, what is refused and why, what it means for produce."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drayd.config import Settings
from drayd.configs.broker_keys import static_values
from drayd.configs.brokers import BrokerView
from drayd.configs.topic_keys import TOPIC_KEYS
from drayd.topic_config import TopicLimits, check, limits
from protocol.errors import ErrorCode, KafkaError


def view(settings: Settings) -> BrokerView:
    return BrokerView(static_values(settings), {}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ""),
        ("compression.type", "zstd"),
        ("max.message.bytes", " +7 "),
        ("preallocate", "TRUE"),
        ("compression.type", "producer"),
        ("max.message.bytes", "0"),
        ("max.message.bytes", str(2**31 - 1)),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("retention.bytes", "-1"),
        ("retention.ms", "-1"),
        ("retention.ms", str(2**63 - 1)),
        ("preallocate", "false"),
        ("segment.bytes", str(1024 * 1024)),
    ],
)
def test_what_kafka_takes_is_taken_and_kept_as_it_is(name: str, value: str) -> None:
    assert check({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "keep"),
        ("cleanup.policy", "delete,keep"),
        ("max.message.bytes", "-1"),
        ("max.message.bytes", str(2**31)),
        ("max.message.bytes", "many"),
        ("max.message.bytes", ""),
        ("max.message.bytes", "1.5"),
        ("max.message.bytes", "1_000"),
        ("message.timestamp.type", "logappendtime"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.insync.replicas", "0"),
        ("preallocate", "yes"),
        ("retention.ms", "-2"),
        ("retention.ms", str(2**63)),
        ("segment.bytes", "1000"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check({name: value})
    assert raised.value.code is ErrorCode.invalid_config
    assert name in raised.value.message


@pytest.mark.parametrize("config", [{"no.such.key": "1"}, {"retention.ms": None}])
def test_unknown_keys_and_nulls_are_refused(config: dict[str, str | None]) -> None:
    with pytest.raises(KafkaError) as raised:
        check(config)
    assert raised.value.code is ErrorCode.invalid_config


def test_an_absurdly_long_number_is_only_refused() -> None:
    with pytest.raises(KafkaError):
        check({"retention.ms": "9" * 10_000})


def test_a_topic_without_configuration_has_the_brokers_limits() -> None:
    settings = replace(Settings(), message_max_bytes=777)
    assert limits(view(settings), {}) == TopicLimits(
        max_message_bytes=777,
        timestamp_type="CreateTime",
        before_max_ms=settings.log_message_timestamp_before_max_ms,
        after_max_ms=settings.log_message_timestamp_after_max_ms,
        require_key=False,
    )


def test_a_topics_own_configuration_wins() -> None:
    config = {
        "max.message.bytes": "5",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "6",
        "message.timestamp.after.max.ms": "7",
        "cleanup.policy": "compact,delete",
    }
    assert limits(view(Settings()), check(config)) == TopicLimits(5, "LogAppendTime", 6, 7, True)


def test_the_brokers_timestamp_type_can_be_undone_by_a_topic() -> None:
    settings = replace(Settings(), log_message_timestamp_type="LogAppendTime")
    assert limits(view(settings), {}).timestamp_type == "LogAppendTime"
    own = {"message.timestamp.type": "CreateTime"}
    assert limits(view(settings), own).timestamp_type == "CreateTime"


def test_every_key_refuses_nonsense() -> None:
    for name in TOPIC_KEYS:
        with pytest.raises(KafkaError):
            check({name: "nonsense"})
