"""One request on its way through a handler."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from drayd.broker import Broker
from drayd.connection import Connection, Unanswered
from drayd.quotas import Mutations
from drayd.work import Work
from protocol.frames import RequestHead
from protocol.messages import make, nested, response_class

Result = Any
"""A response entity, a future of one (Produce and Fetch), or Unanswered (acks=0)."""

T = TypeVar("T")

# From these versions on a client knows THROTTLING_QUOTA_EXCEEDED (KIP-599): CreateTopics,
# DeleteTopics, CreatePartitions.
_STRICT_MUTATIONS_FROM = {19: 6, 20: 5, 37: 3}

__all__ = ["Call", "Result", "Unanswered"]


@dataclass(slots=True)
class Call:
    broker: Broker
    connection: Connection
    head: RequestHead
    request: Any
    frame_bytes: int
    work: Work | None = None
    """Measured if somebody's `request_percentage` is limited."""
    throttle_ms: int = 0
    throttled_by: str = ""
    counted: bool = False
    """The handler has counted the request against the quotas itself."""
    _mutations: Mutations | None = field(default=None, repr=False)

    @property
    def user(self) -> str:
        return self.connection.user

    def timed(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """For the part of a request that goes on in a task of its own."""
        return coroutine if self.work is None else self.work.timed(coroutine)

    def throttle(self, quota: str, throttle_ms: int) -> None:
        """The client has to wait for so long; of several times the longest counts."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self.throttled_by = throttle_ms, quota

    def mutate(self, partitions: int) -> None:
        """Counts partitions that are about to be made or deleted against
        `controller_mutation_rate`. KafkaError if the client must wait first."""
        quotas = self.broker.quotas
        if quotas.mutation is None:
            return
        if self._mutations is None:
            strict_from = _STRICT_MUTATIONS_FROM.get(self.head.api_key, 0)
            self._mutations = quotas.mutations(
                self.user, self.client_id, strict=self.version >= strict_from
            )
        try:
            self._mutations.take(partitions)
        finally:
            self.throttle("controller_mutation", self._mutations.throttle_ms)

    @property
    def version(self) -> int:
        return self.head.api_version

    @property
    def response_class(self) -> Any:
        return response_class(self.head.api_key, self.head.api_version)

    def respond(self, **fields: Any) -> Any:
        """The response of this version from a superset of fields."""
        return make(self.response_class, **fields)

    def item_class(self, *path: str) -> Any:
        """The class of a nested struct of the response, e.g. item_class("topics")."""
        cls = self.response_class
        for name in path:
            cls = nested(cls, name)
        return cls

    @property
    def client_id(self) -> str:
        return self.head.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it."""
        return "/" + self.connection.peer.rpartition(":")[0]
