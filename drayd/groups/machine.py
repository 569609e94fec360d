"""What the coordinator's runtime and the state machines of groups agree on.

A machine is a module (`classic`, `consumer`) with the functions of `Machine`. The runtime calls
one function of one group at a time, commits what the machine wants to have stored, and only then
takes over the new state and sends the replies. So:

- A state is immutable. If the commit fails, the runtime keeps the old one, tells whoever asked to
  try again, and nothing has happened.
- A machine never waits. A request that is answered later (JoinGroup, SyncGroup) is its token, kept
  in the state until some later decision replies to it. Tokens are never stored.
- Every deadline in a state is in monotonic milliseconds, and `wake_ms` is the earliest of them.
- Events and replies are facts; handlers translate them from and to the wire.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from metadata.group_values import GroupRecord
from protocol.errors import ErrorCode

Token: TypeAlias = int
"""One request that is being answered."""
NOBODY: Token = -1
"""The token of what nobody asked for: a timer, a change of topics."""


class Kind(StrEnum):
    """A group's type, as ListGroups names it."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"


# -- what a machine is told ----------------------------------------------------------------------


class TopicFacts(NamedTuple):
    topic_id: UUID
    name: str
    partitions: int


class TopicsView(Protocol):
    """The topics that exist now."""

    @property
    def version(self) -> int:
        """Changes whenever any topic is created, deleted or grows."""

    def by_name(self, name: str) -> TopicFacts | None: ...

    def by_id(self, topic_id: UUID) -> TopicFacts | None: ...

    def names(self) -> Collection[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's settings of groups and its defaults, with the overrides of the group at hand."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    classic_protocol_enabled: bool = True
    consumer_protocol_enabled: bool = True
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    """The shortest time between two target assignments (KIP-1263)."""
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """By name; the first is the default."""
    consumer_regex_refresh_interval_ms: int = 600_000


class Env(NamedTuple):
    """The circumstances of one decision."""

    now_ms: int
    """Monotonic."""
    settings: GroupSettings
    topics: TopicsView
    token: Token = NOBODY
    """The request that this event is."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a group is told. Subclasses are the requests of each protocol."""


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """A deadline may have passed."""


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """`env.topics` has another version. Sent to consumer groups."""


@dataclass(frozen=True, slots=True)
class Request(Event):
    """A request of a member. Each protocol's own requests derive from it.

    A machine gets requests of the other protocol too, while its group isn't empty, and answers
    them (with an error where there is no online conversion)."""

    @property
    def kind(self) -> Kind:
        """The protocol that the request is of."""
        raise NotImplementedError

    @property
    def creates(self) -> bool:
        """Whether a group that doesn't exist is made, and one of the other kind that is empty
        converted, for this request."""
        return False


# -- what a machine says -------------------------------------------------------------------------

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class Reply(NamedTuple):
    """An answer to a request that waits; `answer` is of a type that its handler knows."""

    token: Token
    answer: object


@dataclass(frozen=True, slots=True)
class Decision(Generic[S_co]):
    state: S_co
    record: GroupRecord | None = None
    """What to store; None if nothing that is stored has changed (as with heartbeats)."""
    replies: tuple[Reply, ...] = ()
    """Sent when the record is committed: to whoever asked, and to others who waited."""
    wake_ms: int | None = None
    """Monotonic: the runtime sends a `Tick` then. None: there is nothing to wait for."""
    delete: bool = False
    """The record is to be removed (a group that has nothing left but offsets keeps those)."""
    reason: str | None = None
    """Why a rebalance began, for the log and the metrics; None if none did."""


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits offsets."""

    member_id: str
    instance_id: str | None
    generation: int
    """A classic member's generation, or a consumer member's epoch."""
    api_version: int
    transactional: bool = False
    partitions: tuple[tuple[UUID, int], ...] = ()
    """What offsets are committed of: an older epoch of a consumer member is good for partitions
    that it had then and has had since (KIP-1251)."""


@dataclass(frozen=True, slots=True)
class Admission(Generic[S_co]):
    """Whether an OffsetCommit is taken. A classic member's commit renews its session: `state`."""

    state: S_co
    code: ErrorCode
    wake_ms: int | None


class Summary(NamedTuple):
    state: str
    """As Kafka names it: Empty, Stable, PreparingRebalance, Assigning, …"""
    protocol_type: str
    """"consumer", "connect", …; empty if the group never had a member."""
    members: int
    """Those of pending joins aren't counted."""
    subscriptions: frozenset[str] | None
    """The topics whose offsets don't expire and can't be deleted; None if the machine can't
    know (a classic group that isn't of consumers, or is rebalancing)."""
    idle: bool
    """No member, nobody who waits, no pending member id: may be forgotten or converted."""


class Machine(Protocol):
    """A module with these functions; `Any` stands for its own type of state."""

    def fresh(self, group_id: str) -> Any:
        """The state of a group that doesn't exist yet."""

    def restore(self, group_id: str, record: Any, env: Env) -> Decision[Any]:
        """The state from what was stored, after a restart or a failover: every member gets a
        fresh session, nobody is thrown out, no generation or epoch changes."""

    def decide(self, state: Any, event: Event, env: Env) -> Decision[Any]: ...

    def admit_commit(self, state: Any, committer: Committer, env: Env) -> Admission[Any]: ...

    def admit_fetch(self, state: Any, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether an OffsetFetch (KIP-848, version 9 and later) is taken."""

    def summary(self, state: Any) -> Summary: ...
