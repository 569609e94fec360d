"""ElectLeaders: every broker leads, so there is never an election to hold."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from protocol.errors import ErrorCode
from protocol.messages import make, nested

KEY = 43
NAME = "ElectLeaders"
VERSIONS = range(3)

PREFERRED, UNCLEAN = 0, 1


async def handle(call: Call) -> Result:
    kind = getattr(call.request, "election_type", PREFERRED)
    known = kind in (PREFERRED, UNCLEAN)
    asked = call.request.topic_partitions
    topic_class = call.item_class("replica_election_results")
    if asked is None:
        # Of everything, Kafka lists only what was elected.
        topics = [
            make(topic_class, topic=topic.name, partition_result=())
            for topic in (call.broker.topics.all() if known else ())
        ]
    else:
        topics = []
        for item in asked:
            partitions = [
                await _partition(call, kind, item.topic, number) for number in item.partitions
            ]
            topics.append(make(topic_class, topic=item.topic, partition_result=tuple(partitions)))
    return call.respond(
        throttle_time=0,
        error_code=ErrorCode.none if known else ErrorCode.invalid_request,
        replica_election_results=tuple(topics),
    )


async def _partition(call: Call, kind: int, name: str, number: int) -> Any:
    topic = await call.broker.topics.find(name)
    if kind not in (PREFERRED, UNCLEAN):
        code, message = ErrorCode.invalid_request, f"Unknown election type {kind}"
    elif topic is None:
        code, message = ErrorCode.unknown_topic_or_partition, f"No such topic as {name}"
    elif not 0 <= number < len(topic.partitions):
        code = ErrorCode.unknown_topic_or_partition
        message = f"No such partition as {name}-{number}"
    else:
        code = ErrorCode.election_not_needed
        message = "Leader election not needed for topic partition."
    cls = nested(call.item_class("replica_election_results"), "partition_result")
    return make(cls, partition_id=number, error_code=code, error_message=message)
