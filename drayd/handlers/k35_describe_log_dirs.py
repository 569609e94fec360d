"""DescribeLogDirs: the object store as the one log folder. Sizes are those of the batches that a
partition's index refers to; replication and the objects' own bytes aren't counted."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any
from urllib.parse import unquote, urlsplit

from drayd.call import Call, Result
from metadata.store import StoreError
from metadata.streams import StreamMissing
from metadata.values import Lifecycle, Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 35
NAME = "DescribeLogDirs"
VERSIONS = range(1, 6)

UNKNOWN = -1
"""An object store far away has no size."""


async def handle(call: Call) -> Result:
    folder, total, usable = await asyncio.to_thread(_place, call.broker.settings.storage_url)
    code = ErrorCode.none
    topics: list[Any] = []
    try:
        topics = [await _topic(call, *item) for item in (await _wanted(call)).values()]
    except KafkaError as error:
        code = error.code
    result = make(
        call.item_class("results"),
        error_code=code,
        log_dir=folder,
        topics=tuple(topic for topic in topics if topic.partitions),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
    return call.respond(throttle_time=0, error_code=ErrorCode.none, results=(result,))


def _place(url: str) -> tuple[str, int, int]:
    """The folder or the address of the store, and the size and the free space of its disk."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}", UNKNOWN, UNKNOWN
    folder = unquote(parts.path)
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return folder, UNKNOWN, UNKNOWN
    return folder, disk.total, disk.free


async def _wanted(call: Call) -> dict[str, tuple[Topic, set[int]]]:
    asked = call.request.topics
    if asked is None:
        return {
            topic.name: (topic, set(range(len(topic.partitions))))
            for topic in call.broker.topics.all()
        }
    wanted: dict[str, tuple[Topic, set[int]]] = {}
    for item in asked:
        topic = await call.broker.topics.find(item.topic)
        if topic is not None:
            wanted.setdefault(item.topic, (topic, set()))[1].update(item.partitions)
    return wanted


async def _topic(call: Call, topic: Topic, partitions: set[int]) -> Any:
    cls = call.item_class("results", "topics")
    shown = []
    for index in sorted(partitions):
        size = await _size(call, topic, index)
        if size is not None:
            shown.append(
                make(
                    nested(cls, "partitions"),
                    partition_index=index,
                    partition_size=size,
                    offset_lag=0,
                    is_future_key=False,
                )
            )
    return make(cls, name=topic.name, partitions=tuple(shown))


async def _size(call: Call, topic: Topic, index: int) -> int | None:
    if not 0 <= index < len(topic.partitions):
        return None
    ref = topic.partitions[index]
    try:
        head = (await call.broker.domain(ref).stream(ref.stream_id)).head
    except StreamMissing:
        return None
    except StoreError as error:
        raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
    return head.total_bytes - head.start_bytes if head.state == Lifecycle.ACTIVE else None
