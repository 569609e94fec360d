"""The services that handlers use, in one place. `app.py` puts them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drayd.cache import Cache
from drayd.config import Settings
from drayd.configs.service import ConfigService
from drayd.coordinator import Coordinator
from drayd.fetch import Fetcher
from drayd.fetch_sessions import FetchSessions
from drayd.metrics import Metrics
from drayd.produce import DomainWriter
from drayd.quotas import ClientQuotas
from drayd.topics import TopicService
from drayd.trimming import Trimmer
from drayd.waiters import Waiters
from metadata.cluster import Numbers
from metadata.streams import DomainLog
from metadata.values import StreamRef


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients see it."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class Broker:
    settings: Settings
    metrics: Metrics
    cluster_id: str
    node: Node
    configs: ConfigService
    topics: TopicService
    domains: Sequence[DomainLog]
    writers: Sequence[DomainWriter]
    fetcher: Fetcher
    sessions: FetchSessions
    cache: Cache
    trimmer: Trimmer
    waiters: Waiters
    producer_ids: Numbers
    groups: Coordinator
    quotas: ClientQuotas
    now_ms: Callable[[], int]

    def nodes(self) -> list[Node]:
        return [self.node]

    def leader(self, ref: StreamRef) -> Node:
        """The broker that clients are led to for a partition; any other would do as well."""
        return self.node

    def domain(self, ref: StreamRef) -> DomainLog:
        return self.domains[ref.domain]
