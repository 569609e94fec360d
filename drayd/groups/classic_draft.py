"""A classic group while a decision about it is made: a working copy with the mechanics of
rebalances, from which the next state is taken.

The phases: Empty → PreparingRebalance (members join) → CompletingRebalance (the leader computes,
everyone syncs) → Stable → PreparingRebalance …. Invariants:

- The generation grows by one whenever a join phase ends, and never otherwise.
- A waiting request is in exactly one place: `join` or `sync` of one member. Whatever removes or
  replaces a member, or starts another phase, answers it.
- While there are members there is one leader, and it is one of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drayd.groups.classic_events import Answer, Join, Joined, Protocols, Synced
from drayd.groups.classic_state import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    Initial,
    Member,
    Status,
    joined_members,
    replaced,
    select_protocol,
    static_member,
    subscribed_topics,
)
from drayd.groups.consumer_events import BeatAnswer
from drayd.groups.machine import NOBODY, Env, Reply, Token
from protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long the first JoinGroup of a member waits at most: a client that went away can't be noticed
while it waits, and would come back as yet another member."""


class Draft:
    def __init__(self, group: ClassicGroup, env: Env) -> None:
        self._from = group
        self.now_ms = env.now_ms
        self.settings = env.settings
        self.exists = group.exists
        self.status = group.status
        self.generation = group.generation
        self.protocol_type = group.protocol_type
        self.protocol_name = group.protocol_name
        self.leader = group.leader
        self.members = dict(group.members)
        self.pending = dict(group.pending)
        self.pending_sync = set(group.pending_sync)
        self.initial = group.initial
        self.join_deadline_ms = group.join_deadline_ms
        self.sync_deadline_ms = group.sync_deadline_ms
        self.subscriptions = group.subscriptions
        self.replies: list[Reply] = []
        self.reason: str | None = None

    def state(self) -> ClassicGroup:
        """The state that comes out."""
        return ClassicGroup(
            group_id=self._from.group_id,
            exists=self.exists,
            status=self.status,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            members=self.members,
            pending=self.pending,
            pending_sync=frozenset(self.pending_sync),
            initial=self.initial,
            join_deadline_ms=self.join_deadline_ms,
            sync_deadline_ms=self.sync_deadline_ms,
            subscriptions=self.subscriptions,
        )

    def reply(self, token: Token, answer: Answer | BeatAnswer) -> None:
        if token != NOBODY:
            self.replies.append(Reply(token, answer))

    # -- members -----------------------------------------------------------------------------

    def update(self, member_id: str, **changes: Any) -> Member:
        member = replaced(self.members[member_id], **changes)
        self.members[member_id] = member
        return member

    def touch(self, member_id: str) -> None:
        """A fresh session, unless a request of the member waits."""
        member = self.members[member_id]
        if member.join is None and member.sync is None:
            self.update(member_id, deadline_ms=self.now_ms + member.session_timeout_ms)

    def add(self, join: Join, member_id: str, token: Token) -> None:
        """A new member, whose JoinGroup waits from now on."""
        if not self.members:
            self.protocol_type = join.protocol_type
        if self.initial is not None:
            self.initial = msgspec.structs.replace(self.initial, member_added=True)
        self.pending.pop(member_id, None)
        self.members[member_id] = Member(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocols=join.protocols,
            fresh=True,
            join=token,
            deadline_ms=self.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        if self.leader is None:
            self.leader = member_id

    def rejoin(self, join: Join, member_id: str, token: Token) -> None:
        """A member's JoinGroup waits, with what it offers now. An earlier one that still waited
        (its client gave up on it) is answered, so that no request is forgotten."""
        member = self.members[member_id]
        if member.join is not None:
            self.reply(member.join, Joined(ErrorCode.rebalance_in_progress, member_id))
        self.update(
            member_id,
            protocols=join.protocols,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            join=token,
            deadline_ms=member.deadline_ms if member.fresh else None,
        )

    def remove(self, member_id: str) -> None:
        """A member goes; what it waited for is answered, so that a client that is still there
        begins anew. The next in the order of joining becomes the leader."""
        self.pending.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.join is not None:
            self.reply(member.join, Joined(ErrorCode.unknown_member_id, ""))
        if member.sync is not None:
            self.reply(member.sync, Synced(ErrorCode.unknown_member_id))
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old_id: str, new_id: str) -> None:
        """A static member came back under a new id: it takes the old one's place and role, and
        whoever still uses the old id is fenced (KIP-345)."""
        old = self.members.pop(old_id)
        if old.join is not None:
            self.reply(old.join, Joined(ErrorCode.fenced_instance_id, old_id))
        if old.sync is not None:
            self.reply(old.sync, Synced(ErrorCode.fenced_instance_id))
        lasts_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if old.fresh else old.session_timeout_ms
        self.members[new_id] = replaced(
            old, member_id=new_id, join=None, sync=None, deadline_ms=self.now_ms + lasts_ms
        )
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        if self.leader == old_id:
            self.leader = new_id

    def owner(self, instance_id: str) -> str | None:
        """The member behind an instance id."""
        return static_member(self.members, instance_id)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member that offers these can be in the group."""
        if self.status is Status.EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        shared = {name for name, _ in protocols}
        for member in self.members.values():
            shared.intersection_update([name for name, _ in member.protocols])
        return bool(shared)

    # -- the phases --------------------------------------------------------------------------

    def rebalance_or_complete(self, reason: str) -> None:
        """After a change of the members: a new rebalance, or perhaps the end of a running one."""
        if self.status is Status.PREPARING:
            self.complete_join_if_all_came()
        else:
            self.prepare(reason)

    def prepare(self, reason: str) -> None:
        """Ask everyone to join. Whoever waits for an assignment of the old generation must too."""
        self.reason = reason
        if self.status is Status.COMPLETING:
            self._answer_syncs(ErrorCode.rebalance_in_progress)
            for member_id in self.members:
                self.update(member_id, assignment=b"")
        self.sync_deadline_ms = None
        self.pending_sync.clear()
        initial = self.status is Status.EMPTY
        self.status = Status.PREPARING
        if not initial:
            if self._all_came():
                self.complete_join()
            else:
                self.join_deadline_ms = self.now_ms + self._rebalance_timeout_ms()
            return
        delay_ms = self.settings.initial_rebalance_delay_ms
        remaining_ms = max(self._rebalance_timeout_ms() - delay_ms, 0)
        self.initial = Initial(delay_ms, remaining_ms)
        self.join_deadline_ms = self.now_ms + delay_ms

    def complete_join_if_all_came(self) -> None:
        """The first rebalance of an empty group takes its time all the same."""
        if self.status is Status.PREPARING and self.initial is None and self._all_came():
            self.complete_join()

    def join_deadline(self) -> None:
        """The time to join is over, or, in a first rebalance where members still come, extended."""
        initial = self.initial
        if initial is None or not initial.member_added or initial.remaining_ms == 0:
            self.complete_join()
            return
        delay_ms = min(self.settings.initial_rebalance_delay_ms, initial.remaining_ms)
        self.initial = Initial(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
        self.join_deadline_ms = self.now_ms + delay_ms

    def complete_join(self) -> None:
        """A new generation of those who joined. Static members that are merely late stay."""
        self.join_deadline_ms = None
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self.remove(member.member_id)
        joined = [member.member_id for member in self.members.values() if member.join is not None]
        if self.members and not joined:
            # Nobody could lead. Sessions will end, or somebody comes.
            self.join_deadline_ms = self.now_ms + self._rebalance_timeout_ms()
            return
        self.initial = None
        self.generation += 1
        self.pending_sync.clear()
        if not self.members:
            self._become_empty()
            return
        if self.leader not in joined:
            self.leader = joined[0]
        self.status = Status.COMPLETING
        self.protocol_name = select_protocol(self.members.values())
        self.subscriptions = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            self.subscriptions = subscribed_topics(self.members.values(), self.protocol_name)
        for member in list(self.members.values()):
            if member.join is not None:
                self.reply(member.join, self.joined(member.member_id))
            self.update(
                member.member_id,
                join=None,
                fresh=False,
                deadline_ms=self.now_ms + member.session_timeout_ms,
            )
        self.pending_sync.update(self.members)
        self.sync_deadline_ms = self.now_ms + self._rebalance_timeout_ms()

    def joined(self, member_id: str, *, leader: str | None = None, skip: bool = False) -> Joined:
        """What a member is told of the present generation."""
        leader = self.leader or "" if leader is None else leader
        leads = leader == member_id
        members = joined_members(self.members.values(), self.protocol_name) if leads else ()
        return Joined(
            ErrorCode.none,
            member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            leader,
            skip,
            members,
        )

    def stabilize(self, assignments: dict[str, bytes]) -> None:
        """The leader's assignment is there: it belongs to the generation from now on."""
        self.status = Status.STABLE
        for member_id in self.members:
            self.update(member_id, assignment=assignments.get(member_id, b""))
        self._answer_syncs(ErrorCode.none)

    def synced(self, member_id: str) -> None:
        """A member's SyncGroup came."""
        self.pending_sync.discard(member_id)
        if not self.pending_sync:
            self.sync_deadline_ms = None

    def sync_deadline(self) -> None:
        """Who didn't sync in time goes, and the others begin again."""
        self.sync_deadline_ms = None
        if not self.pending_sync:
            return
        late = sorted(self.pending_sync)
        for member_id in late:
            self.remove(member_id)
        self.prepare(f"removing {', '.join(late)} on pending sync request expiration")

    def member_went(self, reason: str) -> None:
        """After members were removed: the others share what they had."""
        if self.status is not Status.EMPTY:
            self.rebalance_or_complete(reason)

    def expire(self, member_id: str) -> None:
        """A session is over, or a member id was never used."""
        if member_id in self.pending:
            self.remove(member_id)
            self.complete_join_if_all_came()
        else:
            self.remove(member_id)
            self.member_went(f"removing member {member_id} on heartbeat expiration")

    def assignment(self, member_id: str) -> Synced:
        assignment = self.members[member_id].assignment
        return Synced(ErrorCode.none, self.protocol_type, self.protocol_name, assignment)

    # -- inside ------------------------------------------------------------------------------

    def _become_empty(self) -> None:
        self.status = Status.EMPTY
        self.protocol_name = None
        self.subscriptions = frozenset()
        self.leader = None
        self.sync_deadline_ms = None

    def _answer_syncs(self, error: ErrorCode) -> None:
        for member in list(self.members.values()):
            if member.sync is None:
                continue
            self.update(member.member_id, sync=None)
            self.touch(member.member_id)
            failed = error is not ErrorCode.none
            answer = Synced(error) if failed else self.assignment(member.member_id)
            self.reply(member.sync, answer)

    def _all_came(self) -> bool:
        return not self.pending and all(member.join is not None for member in self.members.values())

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
