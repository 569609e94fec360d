"""The metadata as an operator reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from metadata import keys
from metadata.store import MetadataStore
from metadata.topics import TopicMissing
from metadata.values import IndexEntry, StreamHead, Topic, TopicName, decode


async def describe_index(
    store: MetadataStore, topic_name: str, partition: int
) -> AsyncIterator[str]:
    """The offset index of a partition as readable lines, for operators."""
    found = await store.get(keys.topic_name(topic_name), scope=keys.TOPICS_SCOPE)
    if found is None:
        raise TopicMissing(topic_name)
    topic_id = decode(TopicName, found.value).topic_id
    record = await store.get(keys.topic_id(topic_id), scope=keys.TOPICS_SCOPE)
    topic = None if record is None else decode(Topic, record.value)
    if topic is None or not 0 <= partition < len(topic.partitions):
        raise TopicMissing(f"{topic_name} has no partition {partition}")
    ref = topic.partitions[partition]
    scope = keys.domain_scope(ref.domain)
    head_value = await store.get(keys.stream_head(ref.domain, ref.stream_id), scope=scope)
    if head_value is None:
        raise TopicMissing(f"{topic_name}/{partition} has no stream")
    head = decode(StreamHead, head_value.value)
    yield (
        f"{topic_name}/{partition}: stream {ref.stream_id} in domain {ref.domain}, "
        f"offsets [{head.log_start}, {head.log_end}), {head.total_bytes - head.start_bytes} bytes"
    )
    prefix = keys.index(ref.domain, ref.stream_id)
    async for item in store.scan(prefix, keys.end_of(prefix), scope=scope):
        entry = decode(IndexEntry, item.value)
        where = ", ".join(f"{run.position}+{run.length}" for run in entry.runs)
        yield (
            f"  [{entry.start_offset}, {entry.end_offset})  {entry.size_bytes} bytes  "
            f"{entry.path} @ {where}"
        )
