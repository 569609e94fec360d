"""The topics as the state machines of groups see them: names, ids, numbers of partitions."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from drayd.groups.machine import TopicFacts
from metadata.topics import Topics
from metadata.values import Topic


class RegisteredTopics:
    """Satisfies `drayd.groups.machine.TopicsView`."""

    def __init__(self, registry: Topics) -> None:
        self._registry = registry

    @property
    def version(self) -> int:
        return self._registry.version

    def by_name(self, name: str) -> TopicFacts | None:
        return _facts(self._registry.by_name(name))

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        return _facts(self._registry.by_id(topic_id))

    def names(self) -> Collection[str]:
        return self._registry.names()


def _facts(topic: Topic | None) -> TopicFacts | None:
    if topic is None:
        return None
    return TopicFacts(topic.topic_id, topic.name, len(topic.partitions))
