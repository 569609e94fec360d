"""CreatePartitions: a topic gets more partitions; those that it has keep their streams."""

from __future__ import annotations

from collections import Counter
from typing import Any

from drayd.assignments import check_added, check_replicas
from drayd.call import Call, Result
from drayd.topics import MAX_PARTITIONS
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 37
NAME = "CreatePartitions"
VERSIONS = range(4)


async def handle(call: Call) -> Result:
    times = Counter(topic.name for topic in call.request.topics)
    results = []
    for name in times:
        asked = next(topic for topic in call.request.topics if topic.name == name)
        code, message = ErrorCode.none, None
        try:
            if times[name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            await _create(call, asked)
        except KafkaError as error:
            code, message = error.code, error.message or None
        results.append(
            make(call.item_class("results"), name=name, error_code=code, error_message=message)
        )
    return call.respond(throttle_time=0, results=tuple(results))


async def _create(call: Call, asked: Any) -> None:
    topics = call.broker.topics
    topic = await topics.find(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    _check(call, asked, topic)
    call.mutate(asked.count - len(topic.partitions))
    if not call.request.validate_only:
        await topics.add_partitions(topic, asked.count)


def _check(call: Call, asked: Any, topic: Topic) -> None:
    has = len(topic.partitions)
    if asked.count == has:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {has} partition(s).")
    if asked.count < has:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {has} partition(s); "
            f"{asked.count} would not be an increase.",
        )
    if asked.assignments is not None:
        check_added(asked.count - has, len(asked.assignments))
        known = {node.node_id for node in call.broker.nodes()}
        for item in asked.assignments:
            check_replicas(item.broker_ids, known)
    if asked.count - has > MAX_PARTITIONS:
        # As for CreateTopics. Kafka's controller fails on it, and says UNKNOWN_SERVER_ERROR.
        raise KafkaError(
            ErrorCode.policy_violation, "Excessively large number of partitions per request."
        )
