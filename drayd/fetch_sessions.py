"""Incremental fetch sessions (KIP-227): a client names its partitions once, and is then told only
what has changed.

Pure but for the random session ids: time comes in.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from protocol.errors import ErrorCode, KafkaError

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
# Kafka: a session that wasn't used for this long makes room for a new one, and so does one that is
# older than this for a new one with more partitions.
MIN_EVICTION_MS = 120_000


class PartitionKey(NamedTuple):
    """A partition as the client named it: by topic id from Fetch v13 on, by name before."""

    topic: str | None
    topic_id: UUID | None
    partition: int


class Position(NamedTuple):
    """What a client asks of a partition."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


@dataclass(slots=True)
class _Cached:
    position: Position
    high_watermark: int = -1
    log_start: int = -1


class State(NamedTuple):
    """What a client was or is told of a partition."""

    high_watermark: int
    log_start: int
    has_records: bool
    has_error: bool


@dataclass(slots=True, eq=False)
class Session:
    session_id: int
    by_id: bool
    used_ms: int
    created_ms: int = 0
    epoch: int = 1
    partitions: OrderedDict[PartitionKey, _Cached] = field(default_factory=OrderedDict)

    def wanted(self) -> list[tuple[PartitionKey, Position]]:
        return [(key, cached.position) for key, cached in self.partitions.items()]

    def answer(self, key: PartitionKey, state: State, *, full: bool) -> bool:
        """Remembers what is said of a partition; whether it has to be said."""
        cached = self.partitions.get(key)
        if cached is None:
            return True
        changed = (
            state.has_records
            or state.has_error
            or cached.high_watermark != state.high_watermark
            or cached.log_start != state.log_start
        )
        # After an error the partition is sent again, whatever it says.
        cached.high_watermark = -1 if state.has_error else state.high_watermark
        cached.log_start = state.log_start
        if state.has_records and not full:
            # To the end of the line, so that every partition gets its turn.
            self.partitions.move_to_end(key)
        return changed or full


class Context(NamedTuple):
    """How one Fetch request is to be answered."""

    session: Session | None
    wanted: list[tuple[PartitionKey, Position]]
    full: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    def __init__(
        self,
        max_slots: int,
        new_id: Callable[[], int] = lambda: random.randint(1, 2**31 - 1),
    ) -> None:
        self._max_slots = max_slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def forget(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def context(
        self,
        session_id: int,
        epoch: int,
        wanted: list[tuple[PartitionKey, Position]],
        forgotten: Iterable[PartitionKey],
        *,
        by_id: bool,
        now_ms: int,
    ) -> Context:
        """KafkaError for a session or an epoch that isn't ours."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return Context(None, wanted, True)
            return Context(self._open(wanted, by_id, now_ms), wanted, True)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        self._update(session, wanted, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return Context(None, [], True)
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        self._sessions.move_to_end(session_id)
        return Context(session, session.wanted(), False)

    def _update(
        self,
        session: Session,
        wanted: list[tuple[PartitionKey, Position]],
        forgotten: Iterable[PartitionKey],
    ) -> None:
        for key, position in wanted:
            cached = session.partitions.get(key)
            if cached is None:
                session.partitions[key] = _Cached(position)
            else:
                cached.position = position
        for key in forgotten:
            session.partitions.pop(key, None)

    def _open(
        self, wanted: list[tuple[PartitionKey, Position]], by_id: bool, now_ms: int
    ) -> Session | None:
        if len(self._sessions) >= self._max_slots and not self._evict(len(wanted), now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, by_id, now_ms, now_ms)
        session.partitions.update((key, _Cached(position)) for key, position in wanted)
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        """Makes room for a session with `size` partitions, if one is worth less (KIP-227)."""
        if not self._sessions:
            return False
        least = next(iter(self._sessions.values()))
        if now_ms - least.used_ms <= MIN_EVICTION_MS:
            grown_up = [
                each
                for each in self._sessions.values()
                if each.used_ms - each.created_ms > MIN_EVICTION_MS
            ]
            if not grown_up:
                return False
            least = min(grown_up, key=lambda each: (len(each.partitions), each.session_id))
            if size <= len(least.partitions):
                return False
        del self._sessions[least.session_id]
        return True
