"""Requests of the classic protocol to a consumer group that has members.

There is no online conversion, so nobody joins a consumer group with the classic protocol. Members
can be taken out of it by LeaveGroup, which is how administrators do that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from drayd.groups import classic_events as classic
from drayd.groups.consumer_state import Group, State, to_record
from drayd.groups.machine import Decision, Env, Reply, Request
from protocol.errors import ErrorCode


def decide(
    state: State, request: Request, env: Env, remove: Callable[[State, Collection[str]], State]
) -> Decision[State]:
    after = state
    answer: classic.Answer
    # No member of a consumer group speaks the classic protocol, whatever its id.
    match request:
        case classic.Join():
            answer = classic.Joined(ErrorCode.inconsistent_group_protocol, "")
        case classic.Sync():
            answer = classic.Synced(ErrorCode.unknown_member_id)
        case classic.Heartbeat():
            answer = classic.Beaten(ErrorCode.unknown_member_id)
        case classic.Leave():
            results = []
            gone = set()
            for leaver in request.leavers:
                member_id, code = _found(state.group, leaver)
                if code is ErrorCode.none:
                    gone.add(member_id)
                results.append(classic.LeaverResult(leaver.member_id, leaver.instance_id, code))
            if gone:
                after = remove(state, gone)
            answer = classic.Left(tuple(results))
        case _:
            raise TypeError(f"a consumer group was asked {type(request).__name__}")
    return Decision(
        after,
        record=None if after.group is state.group else to_record(after.group),
        replies=(Reply(env.token, answer),),
        wake_ms=after.wake_ms(),
    )


def _found(group: Group, leaver: classic.Leaver) -> tuple[str, ErrorCode]:
    if leaver.instance_id is not None:
        static = group.static_member(leaver.instance_id)
        if static is None:
            return "", ErrorCode.unknown_member_id
        if leaver.member_id not in ("", static.member_id):
            return "", ErrorCode.fenced_instance_id
        return static.member_id, ErrorCode.none
    known = leaver.member_id in group.members
    return leaver.member_id, ErrorCode.none if known else ErrorCode.unknown_member_id
