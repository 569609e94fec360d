"""The classic protocol of consumer groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The members agree on a protocol, one of them (the leader) divides the work, and the coordinator
passes its assignment on without ever looking into it. What each request does in each state follows
Apache Kafka 4.3, error codes included.

What is stored lets another coordinator go on where this one stopped: the phase, the generation and
its members. Who joins for the first time is stored only with the generation that it becomes part
of; a rebalance of a thousand members is three writes, not a thousand.
"""

from __future__ import annotations

from typing import TypeAlias

from drayd.groups.classic_draft import Draft
from drayd.groups.classic_events import (
    Beaten,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeaverResult,
    Left,
    Sync,
    Synced,
)
from drayd.groups.classic_state import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    Member,
    Status,
    member_error,
    select_protocol,
    subscribed_topics,
)
from drayd.groups.consumer_events import (
    Beat,
    BeatAnswer,
    group_not_found,
    no_online_upgrade,
    not_a_consumer_group,
)
from drayd.groups.machine import Admission, Committer, Decision, Env, Event, Summary
from metadata.group_values import ClassicMember, ClassicRecord
from protocol.errors import ErrorCode

Outcome: TypeAlias = Decision[ClassicGroup]


def fresh(group_id: str) -> ClassicGroup:
    """The state of a group that doesn't exist yet."""
    return ClassicGroup(group_id=group_id)


def decide(state: ClassicGroup, event: Event, env: Env) -> Outcome:
    """What `event` does. Deadlines that have passed are looked at after it, so that a member whose
    heartbeat was late, but is here, stays."""
    draft = Draft(state, env)
    match event:
        case Heartbeat():
            _heartbeat(draft, event, env)
        case Join():
            _join(draft, event, env)
        case Sync():
            _sync(draft, event, env)
        case Leave():
            _leave(draft, event, env)
        case Beat():
            draft.reply(env.token, _refused(state, event))
    return _settle(state, draft)


def restore(group_id: str, record: ClassicRecord, env: Env) -> Outcome:
    """The state from what was stored. A rebalance that was under way goes on: members that were
    asked to join, or to sync, get the whole time for it again."""
    now_ms = env.now_ms
    members = {
        stored.member_id: Member(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=stored.protocols,
            assignment=stored.assignment,
            deadline_ms=now_ms + stored.session_timeout_ms,
        )
        for stored in record.members
    }
    status = Status(record.status)
    timeout_ms = max((member.rebalance_timeout_ms for member in members.values()), default=0)
    subscriptions: frozenset[str] | None = None if members else frozenset()
    if record.protocol_type == CONSUMER_PROTOCOL_TYPE and record.protocol_name is not None:
        subscriptions = subscribed_topics(members.values(), record.protocol_name)
    state = ClassicGroup(
        group_id=group_id,
        exists=True,
        status=status,
        generation=record.generation,
        protocol_type=record.protocol_type,
        protocol_name=record.protocol_name,
        leader=record.leader,
        members=members,
        pending_sync=frozenset(members) if status is Status.COMPLETING else frozenset(),
        join_deadline_ms=now_ms + timeout_ms if status is Status.PREPARING else None,
        sync_deadline_ms=now_ms + timeout_ms if status is Status.COMPLETING else None,
        subscriptions=subscriptions,
    )
    return Decision(state, wake_ms=_wake_ms(state))


def admit_commit(state: ClassicGroup, committer: Committer, env: Env) -> Admission[ClassicGroup]:
    """Whether these offsets may be committed. A member's commit renews its session."""
    code = _commit_error(state, committer)
    if code is ErrorCode.none and committer.member_id in state.members:
        draft = Draft(state, env)
        draft.touch(committer.member_id)
        state = draft.state()
    return Admission(state, code, _wake_ms(state))


def admit_fetch(state: ClassicGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Anybody may read a classic group's offsets."""
    return ErrorCode.none


def summary(state: ClassicGroup) -> Summary:
    known = state.status in (Status.STABLE, Status.EMPTY)
    of_consumers = state.protocol_type == CONSUMER_PROTOCOL_TYPE
    if not state.members:
        subscriptions: frozenset[str] | None = frozenset()
    else:
        subscriptions = state.subscriptions if known and of_consumers else None
    return Summary(
        state=state.status,
        protocol_type=state.protocol_type or "",
        members=len(state.members),
        subscriptions=subscriptions,
        idle=not state.members and not state.pending and state.status is Status.EMPTY,
    )


# -- requests ------------------------------------------------------------------------------------


def _heartbeat(draft: Draft, beat: Heartbeat, env: Env) -> None:
    error = member_error(draft.members, beat.member_id, beat.instance_id)
    if error is ErrorCode.none:
        if beat.generation != draft.generation:
            error = ErrorCode.illegal_generation
        else:
            draft.touch(beat.member_id)
            if draft.status is Status.PREPARING:
                error = ErrorCode.rebalance_in_progress
    draft.reply(env.token, Beaten(error))


def _join(draft: Draft, join: Join, env: Env) -> None:
    if not draft.exists:
        if join.member_id:
            draft.reply(env.token, Joined(ErrorCode.unknown_member_id, join.member_id))
            return
        draft.exists = True
    error = ErrorCode.none
    member_id = join.member_id
    if not _has_room(draft, member_id):
        draft.remove(member_id)
        draft.complete_join_if_all_came()
        error, member_id = ErrorCode.group_max_size_reached, ""
    elif not draft.supports(join.protocol_type, join.protocols):
        error = ErrorCode.inconsistent_group_protocol
    elif not member_id:
        _join_new(draft, join, env)
        return
    elif member_id in draft.pending:
        _admit(draft, join, member_id, env)
        return
    else:
        error = member_error(draft.members, member_id, join.instance_id)
    if error is not ErrorCode.none:
        draft.reply(env.token, Joined(error, member_id))
        return
    _join_again(draft, join, env)


def _has_room(draft: Draft, member_id: str) -> bool:
    """While the group prepares, those who wait count: if the limit was lowered, who comes last is
    turned away."""
    member = draft.members.get(member_id)
    if draft.status is Status.EMPTY:
        return True
    if draft.status is Status.PREPARING:
        waiting = sum(other.join is not None for other in draft.members.values())
        return (member is not None and member.join is not None) or waiting < draft.settings.max_size
    return member is not None or len(draft.members) < draft.settings.max_size


def _join_new(draft: Draft, join: Join, env: Env) -> None:
    """Somebody without a member id."""
    if join.instance_id is not None:
        old_id = draft.owner(join.instance_id)
        if old_id is None:
            _admit(draft, join, join.new_member_id, env)
        else:
            _join_in_place_of(draft, join, old_id, env)
    elif join.id_required:
        draft.pending[join.new_member_id] = draft.now_ms + join.session_timeout_ms
        draft.reply(env.token, Joined(ErrorCode.member_id_required, join.new_member_id))
    else:
        _admit(draft, join, join.new_member_id, env)


def _admit(draft: Draft, join: Join, member_id: str, env: Env) -> None:
    draft.add(join, member_id, env.token)
    static = f" with group instance id {join.instance_id}" if join.instance_id else ""
    draft.rebalance_or_complete(_because(f"adding new member {member_id}{static}", join))


def _join_in_place_of(draft: Draft, join: Join, old_id: str, env: Env) -> None:
    """A static member that restarted. In a stable group whose protocol stays as it is, it takes
    over the assignment of its former self, and nobody else notices."""
    former_leader = draft.leader
    new_id = join.new_member_id
    draft.replace(old_id, new_id)
    draft.rejoin(join, new_id, env.token)
    match draft.status:
        case Status.STABLE:
            if select_protocol(draft.members.values()) != draft.protocol_name:
                draft.prepare(_because(f"static member {new_id} changed the protocol", join))
                return
            draft.update(new_id, join=None)
            draft.touch(new_id)
            if join.can_skip_assignment:
                leads = draft.leader == new_id
                answer = draft.joined(new_id, skip=leads)
            else:
                # It hears of its former self as the leader, so that it doesn't assign again.
                answer = draft.joined(new_id, leader=former_leader)
            draft.reply(env.token, answer)
        case Status.COMPLETING:
            # The leader may have divided the work among the old ids already.
            draft.prepare(_because(f"updating metadata for static member {new_id}", join))
        case _:
            draft.complete_join_if_all_came()


def _join_again(draft: Draft, join: Join, env: Env) -> None:
    """A member of the group."""
    member_id = join.member_id
    changed = draft.members[member_id].protocols != join.protocols
    match draft.status:
        case Status.PREPARING:
            rebalance = True
        case Status.COMPLETING:
            # If nothing has changed it probably missed the answer to its JoinGroup.
            rebalance = changed
        case Status.STABLE:
            # A leader that joins wants to assign anew, say because there are more partitions.
            rebalance = changed or draft.leader == member_id
        case Status.EMPTY:
            draft.reply(env.token, Joined(ErrorCode.unknown_member_id, member_id))
            return
    if not rebalance:
        draft.reply(env.token, draft.joined(member_id))
        return
    what = "leader" if draft.leader == member_id and not changed else "updating metadata for member"
    reason = _because(f"{what} {member_id} joining during {draft.status}", join)
    if draft.status is not Status.PREPARING:
        # Its SyncGroup, if one waits, is answered by the new rebalance.
        draft.rejoin(join, member_id, env.token)
        draft.prepare(reason)
    else:
        draft.rejoin(join, member_id, env.token)
        draft.complete_join_if_all_came()


def _because(what: str, join: Join) -> str:
    return f"{what}; client reason: {join.reason or 'not provided'}"


def _sync(draft: Draft, sync: Sync, env: Env) -> None:
    error = member_error(draft.members, sync.member_id, sync.instance_id)
    if error is ErrorCode.none:
        error = _sync_error(draft, sync)
    if error is not ErrorCode.none:
        draft.reply(env.token, Synced(error))
        return
    member_id = sync.member_id
    draft.synced(member_id)
    if draft.status is Status.STABLE:
        draft.reply(env.token, draft.assignment(member_id))
        return
    earlier = draft.members[member_id].sync
    if earlier is not None:
        draft.reply(earlier, Synced(ErrorCode.rebalance_in_progress))
    draft.update(member_id, sync=env.token, deadline_ms=None)
    if draft.leader == member_id:
        draft.stabilize(dict(sync.assignments))


def _sync_error(draft: Draft, sync: Sync) -> ErrorCode:
    if sync.generation != draft.generation:
        return ErrorCode.illegal_generation
    for said, actual in (
        (sync.protocol_type, draft.protocol_type),
        (sync.protocol_name, draft.protocol_name),
    ):
        if said is not None and actual is not None and said != actual:
            return ErrorCode.inconsistent_group_protocol
    if draft.status is Status.PREPARING:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _leave(draft: Draft, leave: Leave, env: Env) -> None:
    results: list[LeaverResult] = []
    gone: list[str] = []
    for leaver in leave.leavers:
        error = ErrorCode.none
        member_id: str | None = leaver.member_id
        if member_id and member_id not in draft.pending:
            error = member_error(draft.members, member_id, leaver.instance_id)
        elif not member_id:
            named = leaver.instance_id
            member_id = None if named is None else draft.owner(named)
            error = ErrorCode.unknown_member_id if member_id is None else ErrorCode.none
        if member_id is not None and error is ErrorCode.none:
            draft.remove(member_id)
            gone.append(member_id)
        results.append(LeaverResult(leaver.member_id, leaver.instance_id, error))
    draft.reply(env.token, Left(tuple(results)))
    if gone:
        why = ", ".join(leaver.reason or "not provided" for leaver in leave.leavers)
        draft.member_went(f"{', '.join(gone)} left; client reason: {why}")


def _refused(state: ClassicGroup, beat: Beat) -> BeatAnswer:
    """To a member of the other protocol. (An empty group is converted before it gets here.)"""
    if not state.exists:
        return group_not_found(beat)
    return no_online_upgrade(beat) if beat.joins else not_a_consumer_group(beat)


# -- inside --------------------------------------------------------------------------------------


def _commit_error(state: ClassicGroup, committer: Committer) -> ErrorCode:
    empty = state.status is Status.EMPTY
    if committer.generation < 0 and empty:
        # An administrator, or a consumer that assigns itself.
        return ErrorCode.none
    if committer.generation >= 0 or committer.member_id or committer.instance_id is not None:
        error = member_error(state.members, committer.member_id, committer.instance_id)
        if error is not ErrorCode.none:
            return error
        if committer.generation != state.generation:
            return ErrorCode.illegal_generation
    elif not committer.transactional and not empty:
        return ErrorCode.unknown_member_id
    if not committer.transactional and state.status is Status.COMPLETING:
        # It has the new generation and not yet its part: what it commits it may own no more.
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _settle(before: ClassicGroup, draft: Draft) -> Outcome:
    """What is due happens; then the state, and the record if what is stored changed."""
    while True:
        due = _earliest(draft)
        if due is None or due[0] > draft.now_ms:
            break
        _, what, member_id = due
        if what == "join":
            draft.join_deadline()
        elif what == "sync":
            draft.sync_deadline()
        else:
            draft.expire(member_id)
    state = draft.state()
    stored = _stored_facts(state)
    return Decision(
        state,
        record=_record(state) if stored is not None and stored != _stored_facts(before) else None,
        replies=tuple(draft.replies),
        wake_ms=None if due is None else due[0],
        reason=draft.reason,
    )


def _earliest(group: Draft | ClassicGroup) -> tuple[int, str, str] | None:
    """The next deadline: when, of what, of whom."""
    due: list[tuple[int, str, str]] = [
        (member.deadline_ms, "member", member.member_id)
        for member in group.members.values()
        if member.deadline_ms is not None
    ]
    due += [(at_ms, "pending", member_id) for member_id, at_ms in group.pending.items()]
    if group.join_deadline_ms is not None:
        due.append((group.join_deadline_ms, "join", ""))
    if group.sync_deadline_ms is not None:
        due.append((group.sync_deadline_ms, "sync", ""))
    return min(due, default=None)


def _wake_ms(state: ClassicGroup) -> int | None:
    due = _earliest(state)
    return None if due is None else due[0]


def _stored_facts(state: ClassicGroup) -> object:
    """What calls for a write when it changes. What a member offers isn't part of it: that changes
    only together with the generation, or in a rebalance, where it is said again."""
    if not state.exists:
        return None
    settled = tuple(member_id for member_id, member in state.members.items() if not member.fresh)
    if not settled:
        return Status.EMPTY, state.generation
    return state.status, state.generation, state.protocol_name, state.leader, settled


def _record(state: ClassicGroup) -> ClassicRecord:
    members = [member for member in state.members.values() if not member.fresh]
    leader = state.leader
    if leader is None or state.members[leader].fresh:
        leader = members[0].member_id if members else None
    return ClassicRecord(
        generation=state.generation,
        status=state.status if members else Status.EMPTY,
        protocol_type=state.protocol_type,
        protocol_name=state.protocol_name if members else None,
        leader=leader,
        members=tuple(
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocols=member.protocols,
                assignment=member.assignment,
            )
            for member in members
        ),
    )
