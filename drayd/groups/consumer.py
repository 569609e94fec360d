"""The state machine of consumer groups (KIP-848): see `machine` for what a machine is.

Everything happens in heartbeats. A change of who subscribes to what, or of the topics, raises the
group's epoch; from a new epoch follows a new target assignment (`assignors`), in a heartbeat too
and at most once per `consumer_assignment_interval_ms`; and each member is led to its part of it
in its own heartbeats (`consumer_reconcile`).

- Epochs only grow. A member's epoch is the target's, or an older one while it has to give up
  something first.
- What a member is told in an answer is stored before it is told, and so is what it has let go
  before somebody else is given it.
- Heartbeats that change nothing store nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from drayd.groups import consumer_foreign, regex
from drayd.groups.assignors import ASSIGNORS, Candidate, Partitions
from drayd.groups.consumer_checks import (
    check_commit,
    check_epoch,
    check_fetch,
    check_request,
    check_room,
    known_member,
)
from drayd.groups.consumer_events import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Beat,
    BeatAnswer,
    Refused,
    group_not_found,
)
from drayd.groups.consumer_reconcile import reconcile
from drayd.groups.consumer_state import (
    Group,
    Member,
    MemberState,
    State,
    from_record,
    to_record,
)
from drayd.groups.machine import (
    Admission,
    Committer,
    Decision,
    Env,
    Event,
    Reply,
    Request,
    Summary,
    Tick,
    TopicsView,
)
from metadata.group_values import ConsumerRecord
from protocol.errors import ErrorCode

_T = TypeVar("_T")

REGEX_REST_MS = 10_000
"""A group's regular expressions aren't matched with all topics more often than this."""


def fresh(group_id: str) -> State:
    return State(group_id=group_id)


def restore(group_id: str, record: ConsumerRecord, env: Env) -> Decision[State]:
    """Every member gets a whole session, and whoever has to give something up its whole time."""
    group = from_record(record)
    state = State(
        group_id=group_id,
        group=group,
        exists=True,
        session_ends_ms=dict.fromkeys(
            group.members, env.now_ms + env.settings.consumer_session_timeout_ms
        ),
        revoke_by_ms={
            member.member_id: env.now_ms + member.rebalance_timeout_ms
            for member in group.members.values()
            if member.state is MemberState.UNREVOKED_PARTITIONS
        },
    )
    return Decision(state, wake_ms=state.wake_ms())


def decide(state: State, event: Event, env: Env) -> Decision[State]:
    match event:
        case Beat():
            return _heartbeat(state, event, env)
        case Tick():
            return _tick(state, env)
        case Request():
            return consumer_foreign.decide(state, event, env, remove)
        case _:
            # A change of topics is taken into account by the next heartbeat, as in Kafka.
            return Decision(state, wake_ms=state.wake_ms())


def admit_commit(state: State, committer: Committer, env: Env) -> Admission[State]:
    return Admission(state, check_commit(state.group, committer), state.wake_ms())


def admit_fetch(state: State, member_id: str | None, member_epoch: int) -> ErrorCode:
    return check_fetch(state.group, member_id, member_epoch)


def summary(state: State) -> Summary:
    group = state.group
    return Summary(
        state=group.state_name(),
        protocol_type="consumer",
        members=len(group.members),
        subscriptions=group.subscribed_names(),
        idle=not group.members,
    )


# -- heartbeats ----------------------------------------------------------------------------------


def _heartbeat(state: State, beat: Beat, env: Env) -> Decision[State]:
    try:
        if not env.settings.consumer_protocol_enabled:
            raise Refused(ErrorCode.unsupported_version, "")
        check_request(beat, env.settings)
        if not state.exists and not beat.joins:
            answer, after = group_not_found(beat), state
        elif beat.leaves:
            answer, after = _leave(state, beat)
        else:
            answer, after = _stay(state, beat, env)
    except Refused as refused:
        answer, after = refused.answer, state
    return _decided(state, after, env, answer)


def _decided(before: State, after: State, env: Env, answer: BeatAnswer | None) -> Decision[State]:
    changed = after.group is not before.group or after.exists is not before.exists
    return Decision(
        after,
        record=to_record(after.group) if changed else None,
        replies=() if answer is None else (Reply(env.token, answer),),
        wake_ms=after.wake_ms(),
        reason=_reason(before.group, after.group),
    )


def _reason(before: Group, after: Group) -> str | None:
    if after.epoch == before.epoch:
        return None
    joined = len(after.members.keys() - before.members.keys())
    gone = len(before.members.keys() - after.members.keys())
    if joined or gone:
        return f"{joined} joined, {gone} left"
    return "subscriptions or topics changed"


def _leave(state: State, beat: Beat) -> tuple[BeatAnswer, State]:
    member = known_member(state.group, beat)
    if beat.member_epoch == LEAVE_EPOCH:
        after = remove(state, (member.member_id,))
    else:
        # It keeps its place. What it was giving up it has given up: it owns nothing now.
        away = replace(
            member,
            epoch=STATIC_LEAVE_EPOCH,
            previous_epoch=member.epoch if not member.away else member.previous_epoch,
            state=MemberState.STABLE,
            revoking={},
        )
        after = state
        if away != member:
            members = {**state.group.members, member.member_id: away}
            after = replace(
                state,
                group=replace(state.group, members=members),
                revoke_by_ms=_without(state.revoke_by_ms, member.member_id),
            )
    return BeatAnswer(member_id=member.member_id, member_epoch=beat.member_epoch), after


def _stay(state: State, beat: Beat, env: Env) -> tuple[BeatAnswer, State]:
    """A member joins, or says that it is alive, and what has changed with it."""
    before = state.group
    check_room(before, beat.member_id, env.settings)
    state, member = _enter(state, beat)
    updated = _updated(member, beat)
    if beat.regex is not None and updated.regex and updated.regex != member.regex:
        try:
            regex.check(updated.regex)
        except regex.InvalidRegex as wrong:
            raise Refused(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex `{updated.regex}` is not a valid regular expression: "
                f"{wrong}.",
            ) from None
    subscription_changed = (
        updated.topic_names != member.topic_names or updated.regex != member.regex
    )
    group = _with_member(state.group, updated)
    # An expression that hasn't been matched yet changes nothing before it is.
    raised = updated.topic_names != member.topic_names or (
        updated.regex != member.regex and (not updated.regex or updated.regex in group.regexes)
    )
    if subscription_changed or state.topics_version != env.topics.version:
        group, moved = _with_topics(group, env.topics)
        if raised or moved:
            group = replace(group, epoch=group.epoch + 1)
    assigned_ms = state.assigned_ms
    if group.epoch > group.assignment_epoch and _may_assign(state, env):
        group = _assigned(group, env)
        assigned_ms = env.now_ms
    reconciled = reconcile(
        group,
        updated,
        beat.owned,
        _topic_ids(group.names_of(updated), env.topics),
        subscription_changed=subscription_changed,
    )
    group = _with_member(group, reconciled)
    after = replace(
        state,
        group=group,
        exists=True,
        assigned_ms=assigned_ms,
        topics_version=env.topics.version,
        session_ends_ms={
            **state.session_ends_ms,
            updated.member_id: env.now_ms + env.settings.consumer_session_timeout_ms,
        },
        revoke_by_ms=_revocation(state.revoke_by_ms, updated, reconciled, env.now_ms),
    )
    news = beat.full or _assignment(reconciled) != _assignment(member)
    answer = BeatAnswer(
        member_id=reconciled.member_id,
        member_epoch=reconciled.epoch,
        heartbeat_interval_ms=env.settings.consumer_heartbeat_interval_ms,
        assignment=_assignment(reconciled) if news else None,
    )
    return answer, _match_regexes(after, env, rested=_regexes_rested(state, env))


def _enter(state: State, beat: Beat) -> tuple[State, Member]:
    """The member that the heartbeat is of: known, new, or in the place of a static one."""
    if not beat.joins:
        member = known_member(state.group, beat)
        check_epoch(member, beat)
        return state, member
    member_id = beat.member_id or beat.new_member_id
    known = state.group.members.get(member_id)
    static = state.group.static_member(beat.instance_id) if beat.instance_id else None
    if static is None:
        return state, known or Member(member_id=member_id, instance_id=beat.instance_id)
    if not static.away:
        raise Refused(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {beat.instance_id} cannot join the group "
            f"because the instance id is owned by {static.member_id} member.",
        )
    successor = replace(static, member_id=member_id)
    if static.member_id == member_id:
        return state, successor
    group = state.group
    members = {
        successor.member_id if each is static else each.member_id: (
            successor if each is static else each
        )
        for each in group.members.values()
        if each.member_id != member_id
    }
    targets = _without(group.targets, static.member_id, member_id)
    targets[member_id] = group.targets.get(static.member_id, {})
    state = replace(
        state,
        group=replace(group, members=members, targets=targets),
        session_ends_ms=_without(state.session_ends_ms, static.member_id),
    )
    return state, successor


def _updated(member: Member, beat: Beat) -> Member:
    updated = replace(
        member,
        instance_id=beat.instance_id or member.instance_id,
        rack_id=beat.rack_id or member.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if beat.rebalance_timeout_ms == -1
            else beat.rebalance_timeout_ms
        ),
        topic_names=member.topic_names if beat.topic_names is None else beat.topic_names,
        regex=member.regex if beat.regex is None else beat.regex,
        assignor=beat.assignor or member.assignor,
    )
    return member if updated == member else updated


def _revocation(
    deadlines: Mapping[str, int], before: Member, after: Member, now_ms: int
) -> Mapping[str, int]:
    if after is before:
        return deadlines
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        return {**deadlines, after.member_id: now_ms + after.rebalance_timeout_ms}
    return _without(deadlines, after.member_id)


# -- epochs, targets, topics ---------------------------------------------------------------------


def _may_assign(state: State, env: Env) -> bool:
    rest_ms = env.settings.consumer_assignment_interval_ms
    return state.assigned_ms is None or env.now_ms >= state.assigned_ms + rest_ms


def _assigned(group: Group, env: Env) -> Group:
    """New targets for everyone, of the group's epoch."""
    known = tuple(name for name in env.settings.consumer_assignors if name in ASSIGNORS)
    counts: dict[UUID, int] = {}
    for shape in group.topics.values():
        counts[shape.topic_id] = shape.partitions
    candidates = [
        Candidate(
            member.member_id,
            member.instance_id,
            frozenset(
                group.topics[name].topic_id
                for name in group.names_of(member)
                if name in group.topics
            ),
            group.targets.get(member.member_id, {}),
        )
        for member in group.members.values()
    ]
    targets = ASSIGNORS[group.assignor(known)](candidates, counts)
    return replace(group, targets=targets, assignment_epoch=group.epoch)


def _with_topics(group: Group, topics: TopicsView) -> tuple[Group, bool]:
    """The group with its subscribed topics as they are now; whether they were otherwise."""
    shapes = group.shapes(topics)
    if shapes == group.topics:
        return group, False
    names = group.subscribed_names()
    known = {name: shape for name, shape in group.topics.items() if name in names}
    return replace(group, topics=shapes), shapes != known


def _with_member(group: Group, member: Member) -> Group:
    if group.members.get(member.member_id) is member:
        return group
    return replace(group, members={**group.members, member.member_id: member})


def _topic_ids(names: frozenset[str], topics: TopicsView) -> frozenset[UUID]:
    found = (topics.by_name(name) for name in names)
    return frozenset(facts.topic_id for facts in found if facts is not None)


def _assignment(member: Member) -> Partitions:
    return {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}


# -- regular expressions -------------------------------------------------------------------------


def _regexes_rested(state: State, env: Env) -> bool:
    """Asked before a heartbeat: where none is resolved, none has to rest."""
    if not state.group.regexes or state.regexes_ms is None:
        return True
    return env.now_ms >= state.regexes_ms + REGEX_REST_MS


def _match_regexes(state: State, env: Env, *, rested: bool) -> State:
    """Match the members' expressions with the topics where that is due. It comes after the
    heartbeat's answer, as in Kafka: what it changes is for the next one."""
    group = state.group
    used = {member.regex for member in group.members.values() if member.regex}
    if used != group.regexes.keys():
        kept = {each: names for each, names in group.regexes.items() if each in used}
        if len(kept) != len(group.regexes):
            group = replace(group, regexes=kept)
    elif not used:
        return state
    age_ms = env.now_ms - (state.regexes_ms or 0)
    due = (
        used != group.regexes.keys()
        or state.regexes_version != env.topics.version
        or age_ms >= env.settings.consumer_regex_refresh_interval_ms
    )
    if not (used and due and rested):
        return state if group is state.group else replace(state, group=group)
    found = {each: regex.matching(each, env.topics.names()) for each in sorted(used)}
    raised = any(found[each] != group.regexes.get(each, frozenset()) for each in used)
    if found != group.regexes:
        group, _ = _with_topics(replace(group, regexes=found), env.topics)
    if raised:
        group = replace(group, epoch=group.epoch + 1)
    return replace(state, group=group, regexes_ms=env.now_ms, regexes_version=env.topics.version)


# -- those who go without a word -----------------------------------------------------------------


def _tick(state: State, env: Env) -> Decision[State]:
    after = state
    for deadlines in (state.revoke_by_ms, state.session_ends_ms):
        for member_id, deadline_ms in deadlines.items():
            if deadline_ms <= env.now_ms and member_id in after.group.members:
                after = remove(after, (member_id,))
    return _decided(state, after, env, None)


def remove(state: State, member_ids: Collection[str]) -> State:
    """Without some members; their partitions are free at once."""
    group = replace(
        state.group,
        members=_without(state.group.members, *member_ids),
        targets=_without(state.group.targets, *member_ids),
        epoch=state.group.epoch + 1,
    )
    names = group.subscribed_names()
    group = replace(
        group, topics={name: shape for name, shape in group.topics.items() if name in names}
    )
    return replace(
        state,
        group=group,
        session_ends_ms=_without(state.session_ends_ms, *member_ids),
        revoke_by_ms=_without(state.revoke_by_ms, *member_ids),
    )


def _without(mapping: Mapping[str, _T], *keys: str) -> dict[str, _T]:
    return {each: value for each, value in mapping.items() if each not in keys}
