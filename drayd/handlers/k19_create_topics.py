"""CreateTopics. A topic is usable on any broker when the answer arrives."""

from __future__ import annotations

from collections import Counter
from typing import Any

from drayd.call import Call, Result
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 19
NAME = "CreateTopics"
VERSIONS = range(2, 8)

DEFAULT = -1


async def handle(call: Call) -> Result:
    times = Counter(topic.name for topic in call.request.topics)
    results = []
    for name in times:
        asked = next(topic for topic in call.request.topics if topic.name == name)
        try:
            if times[name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            results.append(await _create(call, asked))
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


async def _create(call: Call, asked: Any) -> Any:
    broker = call.broker
    partitions, factor = _shape(call, asked)
    config = broker.topics.check_new(
        asked.name, partitions, factor, {entry.name: entry.value for entry in asked.configs}
    )
    topic_id = None
    # A topic that exists costs nothing; `create` finds out whether somebody was faster.
    if await broker.topics.find(asked.name) is not None:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{asked.name}' already exists.")
    call.mutate(partitions)
    if not call.request.validate_only:
        topic_id = (await broker.topics.create(asked.name, partitions, config)).topic_id
    return make(
        call.item_class("topics"),
        name=asked.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=(),
    )


def _shape(call: Call, asked: Any) -> tuple[int, int]:
    """Partitions and replication factor. Object storage does the replication, so every factor
    is accepted and 1 is reported."""
    settings = call.broker.settings
    if not asked.assignments:
        partitions = asked.num_partitions
        factor = asked.replication_factor
        return (
            settings.num_partitions if partitions == DEFAULT else partitions,
            settings.default_replication_factor if factor == DEFAULT else factor,
        )
    if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
        raise KafkaError(
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but "
            + (
                "numPartitions was not set to -1."
                if asked.num_partitions != DEFAULT
                else "replication factor was not set to -1."
            ),
        )
    indexes = sorted(item.partition_index for item in asked.assignments)
    known = {node.node_id for node in call.broker.nodes()}
    if indexes != list(range(len(indexes))):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    for item in asked.assignments:
        if not item.broker_ids or not known.issuperset(item.broker_ids):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                "The manual partition assignment names brokers that do not exist.",
            )
    return len(indexes), 1
