"""Topics as Kafka's clients know them: names, creation, deletion, on top of the registry."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from itertools import product
from uuid import UUID

from drayd import topic_config
from drayd.cache import Cache
from drayd.config import Settings
from drayd.configs.service import ConfigService
from drayd.configs.topic_keys import TOPIC_KEYS
from drayd.logs import Logger
from drayd.topic_config import TopicLimits
from drayd.topic_names import can_exist, check_name
from drayd.waiters import Waiters
from metadata.store import StoreError
from metadata.topics import NewTopic, TopicChanged, TopicExists, TopicMissing, Topics
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError

log = Logger(__name__)

MAX_PARTITIONS = 10_000
"""In one request, as in Kafka."""
MAX_COLLISION_PLACES = 8
"""Names with more dots and underscores are compared with every other topic's."""
PURGE_RETRY_S = 5.0


def new_topic_id(now_ms: int) -> UUID:
    """A ULID's 128 bits: milliseconds, then 80 random bits."""
    return UUID(bytes=now_ms.to_bytes(6, "big") + os.urandom(10))


def _cannot_look(error: StoreError) -> KafkaError:
    return KafkaError(ErrorCode.kafka_storage_error, f"the topic could not be looked up: {error}")


class TopicService:
    def __init__(
        self,
        registry: Topics,
        settings: Settings,
        cache: Cache,
        waiters: Waiters,
        now_ms: Callable[[], int],
        configs: ConfigService,
    ) -> None:
        self._configs = configs
        self._registry = registry
        self._settings = settings
        self._cache = cache
        self._waiters = waiters
        self._now_ms = now_ms
        self._limits: dict[UUID, tuple[Topic, int, TopicLimits]] = {}
        self._purges: asyncio.Queue[Topic] = asyncio.Queue()
        self._creating: dict[str, asyncio.Lock] = {}

    # -- looking up --------------------------------------------------------------------------

    def cached(self, name: str | None, topic_id: UUID | None) -> Topic | None:
        if topic_id is not None:
            return self._registry.by_id(topic_id)
        return self._registry.by_name(name) if name is not None else None

    async def find(self, name: str) -> Topic | None:
        """KafkaError(KAFKA_STORAGE_ERROR), which clients retry, if nobody can say."""
        if not can_exist(name):
            return None
        try:
            return await self._registry.find(name)
        except StoreError as error:
            raise _cannot_look(error) from error

    async def find_id(self, topic_id: UUID) -> Topic | None:
        try:
            return await self._registry.find_id(topic_id)
        except StoreError as error:
            raise _cannot_look(error) from error

    def all(self) -> list[Topic]:
        return self._registry.all()

    def limits(self, topic: Topic) -> TopicLimits:
        known = self._limits.get(topic.topic_id)
        generation = self._configs.generation
        if known is not None and known[0] is topic and known[1] == generation:
            return known[2]
        limits = self._configs.limits(topic.config)
        self._limits[topic.topic_id] = (topic, generation, limits)
        return limits

    # -- creating and deleting ---------------------------------------------------------------

    def check_config(self, config: Mapping[str, str | None]) -> dict[str, str]:
        """The configuration to store; KafkaError(INVALID_CONFIG) names what is wrong."""
        return topic_config.check(config)

    def collision(self, name: str) -> str | None:
        """A topic whose name differs from this one only in '.' and '_', which metrics of
        Kafka's clients can't tell apart."""
        places = [i for i, character in enumerate(name) if character in "._"]
        if not places or self._registry.by_name(name) is not None:
            return None
        if len(places) > MAX_COLLISION_PLACES:
            like = name.replace(".", "_")
            known = self._registry.names()
            return next((each for each in known if each.replace(".", "_") == like), None)
        for signs in product("._", repeat=len(places)):
            letters = list(name)
            for place, sign in zip(places, signs, strict=True):
                letters[place] = sign
            if self._registry.by_name("".join(letters)) is not None:
                return "".join(letters)
        return None

    async def add_partitions(self, topic: Topic, count: int) -> Topic:
        """`count` partitions instead of those that `topic` has."""
        try:
            grown = await self._registry.add_partitions(
                topic.topic_id, len(topic.partitions), count
            )
        except TopicMissing:
            raise KafkaError(ErrorCode.unknown_topic_or_partition) from None
        except TopicChanged:
            raise KafkaError(
                ErrorCode.invalid_partitions, f"The partitions of {topic.name} have changed."
            ) from None
        except StoreError as error:
            raise KafkaError(
                ErrorCode.request_timed_out, f"the partitions could not be stored: {error}"
            ) from error
        log.info("partitions added", topic=topic.name, partitions=count)
        return grown

    def may_delete_records(self, topic: Topic) -> bool:
        """What is only compacted is kept, one record a key."""
        key = TOPIC_KEYS["cleanup.policy"]
        policy = topic.config.get(key.name) or self._configs.view.topic_default(key)
        return "compact" not in policy or "delete" in policy

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """KafkaError(TOPIC_ALREADY_EXISTS) if there is one."""
        now_ms = self._now_ms()
        new = NewTopic(name, new_topic_id(now_ms), partitions, config, now_ms)
        try:
            topic = await self._registry.create(new)
        except TopicExists:
            raise KafkaError(
                ErrorCode.topic_already_exists, f"Topic '{name}' already exists."
            ) from None
        except StoreError as error:
            raise KafkaError(
                ErrorCode.request_timed_out, f"the topic could not be stored: {error}"
            ) from error
        log.info("topic created", topic=name, topic_id=str(topic.topic_id), partitions=partitions)
        return topic

    async def auto_create(self, name: str) -> Topic:
        """For a Metadata request: whoever comes second gets the first one's topic."""
        lock = self._creating.setdefault(name, asyncio.Lock())
        try:
            async with lock:
                found = await self.find(name)
                if found is not None:
                    return found
                check_name(name)
                return await self.create(name, self._settings.num_partitions, {})
        except KafkaError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
            found = await self.find(name)
            if found is None:
                raise
            return found
        finally:
            if not lock.locked():
                self._creating.pop(name, None)

    async def delete(self, topic: Topic) -> None:
        try:
            deleted = await self._registry.delete(topic.topic_id)
        except TopicMissing:
            raise KafkaError(ErrorCode.unknown_topic_or_partition) from None
        except StoreError as error:
            raise KafkaError(
                ErrorCode.request_timed_out, f"the deletion could not be stored: {error}"
            ) from error
        self._limits.pop(topic.topic_id, None)
        for ref in topic.partitions:
            self._cache.drop(ref.stream_id)
            self._waiters.changed(ref.stream_id)
        self._purges.put_nowait(deleted)
        log.info("topic deleted", topic=topic.name, topic_id=str(topic.topic_id))

    # -- in the background -------------------------------------------------------------------

    async def load(self) -> None:
        for topic in await self._registry.load():
            self._purges.put_nowait(topic)

    async def follow(self) -> None:
        await self._registry.follow()

    async def purge_deleted(self) -> None:
        """Removes what deleted topics have left; runs until cancelled."""
        while True:
            topic = await self._purges.get()
            try:
                await self._registry.purge(topic)
            except StoreError as error:
                log.warning("the rest of a deleted topic stays for now", error=str(error))
                await asyncio.sleep(PURGE_RETRY_S)
                self._purges.put_nowait(topic)
