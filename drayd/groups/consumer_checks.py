"""What may be wrong with a request to a consumer group: Kafka's checks, in its order and words."""

from __future__ import annotations

from drayd.groups.consumer_events import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Beat,
    Refused,
)
from drayd.groups.consumer_reconcile import is_subset
from drayd.groups.consumer_state import Group, Member
from drayd.groups.machine import Committer, GroupSettings
from protocol.errors import ErrorCode

FIRST_CLIENT_MADE_ID = 1
"""The version of ConsumerGroupHeartbeat from which clients make their member id themselves."""
FIRST_MEMBER_EPOCH = 9
"""The version of OffsetCommit from which clients know of member epochs."""


def check_request(beat: Beat, settings: GroupSettings) -> None:
    """What is wrong whatever the group is."""
    has_id = beat.api_version >= FIRST_CLIENT_MADE_ID or not beat.joins
    if has_id and not beat.member_id:
        raise _invalid("MemberId can't be empty.")
    if not beat.group_id:
        raise _invalid("GroupId can't be empty.")
    if beat.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if beat.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if beat.member_epoch == JOIN_EPOCH:
        if beat.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if beat.owned is None or beat.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if beat.topic_names is None and beat.regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
                "when (re-)joining."
            )
    elif beat.member_epoch == STATIC_LEAVE_EPOCH:
        if beat.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif beat.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if beat.assignor is not None and beat.assignor not in settings.consumer_assignors:
        known = ", ".join(settings.consumer_assignors)
        raise Refused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {known}.",
        )


def check_room(group: Group, member_id: str, settings: GroupSettings) -> None:
    most = settings.consumer_max_size
    if len(group.members) >= most and member_id not in group.members:
        raise Refused(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


def known_member(group: Group, beat: Beat) -> Member:
    """The member that a request comes from, which doesn't join; Refused if it isn't one."""
    if beat.instance_id is not None:
        static = group.static_member(beat.instance_id)
        if static is None:
            raise Refused(
                ErrorCode.unknown_member_id, f"Instance id {beat.instance_id} is unknown."
            )
        if static.member_id != beat.member_id:
            raise Refused(
                ErrorCode.fenced_instance_id,
                f"Static member {beat.member_id} with instance id {beat.instance_id} "
                f"was fenced by member {static.member_id}.",
            )
        return static
    member = group.members.get(beat.member_id)
    if member is None:
        raise Refused(
            ErrorCode.unknown_member_id,
            f"Member {beat.member_id} is not a member of group {beat.group_id}.",
        )
    return member


def check_epoch(member: Member, beat: Beat) -> None:
    """A member must be in the epoch that it says. One exception: it didn't get the answer that
    put it into a new one, and owns nothing that it hasn't been given."""
    received, known = beat.member_epoch, member.epoch
    if received == known:
        return
    if received > known:
        kind = "greater"
    elif (
        received == member.previous_epoch
        and beat.owned is not None
        and is_subset(beat.owned, member.assigned)
    ):
        return
    else:
        kind = "smaller"
    raise Refused(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {kind} member epoch ({received}) than the one known by "
        f"the group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def check_commit(group: Group, committer: Committer) -> ErrorCode:
    if committer.generation < 0 and not group.members:
        return ErrorCode.none
    member = group.members.get(committer.member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    if committer.api_version < FIRST_MEMBER_EPOCH and not committer.transactional:
        return ErrorCode.unsupported_version
    if committer.generation == member.epoch:
        return ErrorCode.none
    had_since = committer.generation < member.epoch and all(
        _given_in(member, slot) <= committer.generation for slot in committer.partitions
    )
    return ErrorCode.none if had_since and committer.partitions else ErrorCode.stale_member_epoch


def check_fetch(group: Group, member_id: str | None, member_epoch: int) -> ErrorCode:
    if member_id is None and member_epoch < 0:
        return ErrorCode.none
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.unknown_member_id
    return ErrorCode.none if member.epoch == member_epoch else ErrorCode.stale_member_epoch


def _given_in(member: Member, slot: tuple[object, int]) -> int:
    """The epoch in which the member was given a partition; too late, if it doesn't have it."""
    topic_id, partition = slot
    for held in (member.assigned, member.revoking):
        for held_id, epochs in held.items():
            if held_id == topic_id and partition in epochs:
                return epochs[partition]
    return member.epoch + 1


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.invalid_request, message)
