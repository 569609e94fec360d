"""One request on its way through a handler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drayd.broker import Broker
from drayd.connection import Connection, Unanswered
from protocol.frames import RequestHead
from protocol.messages import make, nested, response_class

Result = Any
"""A response entity, a future of one (Produce and Fetch), or Unanswered (acks=0)."""

__all__ = ["Call", "Result", "Unanswered"]


@dataclass(slots=True)
class Call:
    broker: Broker
    connection: Connection
    head: RequestHead
    request: Any
    frame_bytes: int

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
        for field in path:
            cls = nested(cls, field)
        return cls

    @property
    def client_id(self) -> str:
        return self.head.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it."""
        return "/" + self.connection.peer.rpartition(":")[0]
