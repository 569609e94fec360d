"""CreateTopics. A topic is usable on any broker when the answer arrives.

Checks come in Kafka's order: the request as a whole, then names, then existing topics, then
configurations, then numbers and assignments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from drayd.assignments import check_partitions, check_replicas
from drayd.call import Call, Result
from drayd.topic_names import check_name
from drayd.topics import MAX_PARTITIONS, new_topic_id
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 19
NAME = "CreateTopics"
VERSIONS = range(2, 8)

DEFAULT = -1
_CONFIGS_FROM_VERSION = 5


async def handle(call: Call) -> Result:
    times = Counter(topic.name for topic in call.request.topics)
    wanted = {topic.name: topic for topic in call.request.topics if times[topic.name] == 1}
    too_many = _count(call, wanted.values()) > MAX_PARTITIONS
    # Within one request names may collide, as in Kafka.
    collisions = {name: call.broker.topics.collision(name) for name in wanted}
    results = []
    for name, count in times.items():
        try:
            if too_many:
                raise KafkaError(
                    ErrorCode.policy_violation,
                    "Excessively large number of partitions per request.",
                )
            if count > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            results.append(await _create(call, wanted[name], collisions[name]))
        except KafkaError as error:
            results.append(
                make(
                    call.item_class("topics"),
                    name=name,
                    topic_id=None,
                    error_code=error.code,
                    error_message=error.message or None,
                    num_partitions=-1,
                    replication_factor=-1,
                    configs=(),
                )
            )
    return call.respond(throttle_time=0, topics=tuple(results))


def _count(call: Call, wanted: Iterable[Any]) -> int:
    """The partitions of a request."""
    count = 0
    for topic in wanted:
        if topic.assignments:
            count += len(topic.assignments)
        elif topic.num_partitions == DEFAULT:
            count += call.broker.settings.num_partitions
        else:
            count += max(topic.num_partitions, 0)
    return count


async def _create(call: Call, asked: Any, collision: str | None) -> Any:
    broker = call.broker
    check_name(asked.name)
    if await broker.topics.find(asked.name) is not None:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{asked.name}' already exists.")
    if collision is not None:
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"Topic '{asked.name}' collides with existing topic: {collision}",
        )
    config = broker.topics.check_config({entry.name: entry.value for entry in asked.configs})
    partitions = _shape(call, asked)
    call.mutate(partitions)
    if call.request.validate_only:
        topic_id = new_topic_id(broker.now_ms())
    else:
        topic_id = (await broker.topics.create(asked.name, partitions, config)).topic_id
    return make(
        call.item_class("topics"),
        name=asked.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=_configs(call, config),
    )


def _configs(call: Call, config: Mapping[str, str]) -> tuple[Any, ...]:
    """All that counts for the topic, its own and the broker's."""
    if call.version < _CONFIGS_FROM_VERSION:
        return ()
    cls = call.item_class("topics", "configs")
    return tuple(
        make(
            cls,
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in call.broker.configs.described(config)
    )


def _shape(call: Call, asked: Any) -> int:
    """The number of partitions. Object storage does the replication, so every replication
    factor is accepted and 1 is reported."""
    if not asked.assignments:
        if asked.replication_factor < 1 and asked.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if asked.num_partitions < 1 and asked.num_partitions != DEFAULT:
            raise KafkaError(
                ErrorCode.invalid_partitions,
                "Number of partitions was set to an invalid non-positive value.",
            )
        if asked.num_partitions == DEFAULT:
            return call.broker.settings.num_partitions
        return int(asked.num_partitions)
    for value, what in (
        (asked.replication_factor, "replication factor"),
        (asked.num_partitions, "numPartitions"),
    ):
        if value != DEFAULT:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    check_partitions([item.partition_index for item in asked.assignments])
    known = {node.node_id for node in call.broker.nodes()}
    for item in asked.assignments:
        check_replicas(item.broker_ids, known)
    return len(asked.assignments)
