"""A classic group played in virtual time: events go in, answers come out, tokens are counted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from drayd.groups import classic
from drayd.groups.classic_events import (
    Beaten,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaver,
    Left,
    Sync,
    Synced,
)
from drayd.groups.classic_state import ClassicGroup, Status
from drayd.groups.machine import Committer, Env, Event, GroupSettings, Tick, TopicFacts
from metadata.group_values import ClassicRecord
from protocol.errors import ErrorCode

A = TypeVar("A")

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class NoTopics:
    """Classic groups don't ask for topics."""

    version = 0

    def by_name(self, name: str) -> TopicFacts | None:
        return None

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        return None

    def names(self) -> Collection[str]:
        return ()


class Play:
    """One group, its coordinator's clock, and every answer by token."""

    def __init__(self, **settings: Any) -> None:
        settings = {"initial_rebalance_delay_ms": 0} | settings
        self.settings = GroupSettings(**settings)
        self.now_ms = 1_000_000
        self.state = classic.fresh("g")
        self.wake_ms: int | None = None
        self.record: ClassicRecord | None = None
        self.writes = 0
        self.answers: dict[int, Any] = {}
        self.asked = 0
        self.lost: set[int] = set()
        """Tokens whose coordinator went away."""

    # -- the runtime -------------------------------------------------------------------------

    def env(self, token: int = -1) -> Env:
        return Env(self.now_ms, self.settings, NoTopics(), token)

    def tell(self, event: Event, token: int = -1) -> None:
        before = self.state
        decision = classic.decide(before, event, self.env(token))
        self.state, self.wake_ms = decision.state, decision.wake_ms
        assert self.wake_ms is None or self.wake_ms > self.now_ms, "something was due"
        assert self.state.generation >= before.generation
        if decision.record is not None:
            assert isinstance(decision.record, ClassicRecord)
            self.record = stored(decision.record)
            self.writes += 1
        for token, answer in decision.replies:
            assert 0 <= token < self.asked, "an answer to nobody"
            assert token not in self.answers, "answered twice"
            assert token not in self.lost
            self.answers[token] = answer
        check(self.state)

    def ask(self, event: Event) -> int:
        token, self.asked = self.asked, self.asked + 1
        self.tell(event, token)
        return token

    def pass_ms(self, delta_ms: int) -> None:
        """Time goes by; the group is woken whenever it wants to be."""
        until_ms = self.now_ms + delta_ms
        while self.wake_ms is not None and self.wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, self.wake_ms)
            self.tell(Tick())
        self.now_ms = until_ms

    def fail_over(self) -> None:
        """Another coordinator takes the group from what was stored."""
        self.lost |= self.waiting()
        generation = self.state.generation
        if self.record is None:
            self.state, self.wake_ms = classic.fresh("g"), None
            return
        decision = classic.restore("g", self.record, self.env())
        assert decision.record is None and not decision.replies
        self.state, self.wake_ms = decision.state, decision.wake_ms
        assert self.state.generation == generation
        check(self.state)

    def phase(self) -> Status:
        return self.state.status

    def exists(self) -> bool:
        return self.state.exists

    def waiting(self) -> set[int]:
        """The tokens that aren't answered."""
        return set(range(self.asked)) - set(self.answers) - self.lost

    # -- requests ----------------------------------------------------------------------------

    def join(self, member_id: str = "", **fields: Any) -> int:
        name = fields.pop("new_member_id", f"new-{self.asked}")
        event = Join(
            member_id=member_id,
            new_member_id=name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", b"r"),),
        )
        return self.ask(replace(event, **fields))

    def sync(self, member_id: str, generation: int, **fields: Any) -> int:
        return self.ask(Sync(member_id=member_id, generation=generation, **fields))

    def beat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        beat = Heartbeat(member_id=member_id, generation=generation, instance_id=instance_id)
        return self.answer(self.ask(beat), Beaten).error

    def leave(self, *members: str | Leaver) -> Left:
        leavers = tuple(m if isinstance(m, Leaver) else Leaver(m) for m in members)
        return self.answer(self.ask(Leave(leavers=leavers)), Left)

    def commit(self, generation: int, member_id: str = "", **fields: Any) -> ErrorCode:
        fields = {"instance_id": None, "api_version": 8} | fields
        committer = Committer(member_id=member_id, generation=generation, **fields)
        admission = classic.admit_commit(self.state, committer, self.env())
        self.state, self.wake_ms = admission.state, admission.wake_ms
        return admission.code

    # -- answers -----------------------------------------------------------------------------

    def answer(self, token: int, kind: type[A]) -> A:
        answer = self.answers[token]
        assert isinstance(answer, kind)
        return answer

    def joined(self, token: int) -> Joined:
        return self.answer(token, Joined)

    def synced(self, token: int) -> Synced:
        return self.answer(token, Synced)

    # -- shortcuts ---------------------------------------------------------------------------

    def admitted(self, name: str, **fields: Any) -> int:
        """A JoinGroup of a new member that has its id already: the token of the second one."""
        first = self.joined(self.join(new_member_id=name, **fields))
        assert first.error is ErrorCode.member_id_required
        return self.join(name, **fields)

    def stable(self, *names: str, **fields: Any) -> int:
        """A stable group of these members, the first of them leading; its generation."""
        tokens = [self.admitted(name, **fields) for name in names[:1]]
        for name in names[1:]:
            self.admitted(name, **fields)
            tokens.append(self.join(names[0], **fields))
            for other in names[1 : names.index(name)]:
                self.join(other, **fields)
        generation = self.state.generation
        self.sync_all(names[0])
        assert self.phase() is Status.STABLE
        assert set(self.state.members) == set(names)
        return generation

    def sync_all(self, leader: str) -> None:
        """Everyone syncs; each gets its own name, the leader last."""
        names = [name for name in self.state.members if name != leader]
        generation = self.state.generation
        tokens = [self.sync(name, generation) for name in names]
        parts = tuple((name, name.encode()) for name in self.state.members)
        tokens.append(self.sync(leader, generation, assignments=parts))
        for name, token in zip([*names, leader], tokens, strict=True):
            assert self.synced(token) == Synced(ErrorCode.none, "consumer", "range", name.encode())


def stored(record: ClassicRecord) -> ClassicRecord:
    """What comes back from the store."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=ClassicRecord)


def check(state: ClassicGroup) -> None:
    """What holds in every state."""
    tokens = [t for m in state.members.values() for t in (m.join, m.sync) if t is not None]
    assert len(tokens) == len(set(tokens)), "a token twice"
    assert (state.leader in state.members) if state.members else state.leader is None
    assert not set(state.pending) & set(state.members)
    assert state.pending_sync <= set(state.members)
    instances = [m.instance_id for m in state.members.values() if m.instance_id is not None]
    assert len(instances) == len(set(instances))
    for name, member in state.members.items():
        assert name == member.member_id
        assert member.deadline_ms is not None or member.join is not None or member.sync is not None
        assert member.join is None or state.status is Status.PREPARING
        assert member.sync is None or state.status is Status.COMPLETING
        assert not member.fresh or member.join is not None
    preparing = state.status is Status.PREPARING
    assert (state.join_deadline_ms is not None) == preparing
    assert state.initial is None or preparing
    if state.status is Status.EMPTY:
        assert not state.members and state.protocol_name is None
    if state.status in (Status.COMPLETING, Status.STABLE):
        assert state.members and state.protocol_name is not None
        assert (state.sync_deadline_ms is None) == (not state.pending_sync)
    else:
        assert state.sync_deadline_ms is None and not state.pending_sync
