"""How a member of a consumer group gets from what it has to its target, one heartbeat at a time.

A member first gives up what it shall not have any more, and stays in its epoch until it has said
that it did. Then it enters the target's epoch, with those of its new partitions that nobody
holds; the others follow as they are let go.

So a partition is given only if nobody else is known to hold it, and it counts as held until its
holder says that it isn't, or is removed from the group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from drayd.groups.assignors import Partitions
from drayd.groups.consumer_state import Group, Held, Member, MemberState


def reconcile(
    group: Group,
    member: Member,
    owned: Partitions | None,
    subscribed: frozenset[UUID],
    *,
    subscription_changed: bool,
) -> Member:
    """The member after a heartbeat in which it said what it owns (None: not said). The very same
    object if nothing changes."""
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or _overlap(owned, member.revoking):
            return _unsubscribe(member, owned, subscribed) if subscription_changed else member
        return _advance(group, member, owned, subscribed)
    if member.state is MemberState.STABLE and member.epoch == group.assignment_epoch:
        return _unsubscribe(member, owned, subscribed) if subscription_changed else member
    return _advance(group, member, owned, subscribed)


def _advance(
    group: Group, member: Member, owned: Partitions | None, subscribed: frozenset[UUID]
) -> Member:
    target = group.targets.get(member.member_id, {})
    wanted = {
        (topic_id, partition)
        for topic_id, partitions in target.items()
        if topic_id in subscribed
        for partition in partitions
    }
    keep = _select(member.assigned, lambda slot: slot in wanted)
    surplus = _select(member.assigned, lambda slot: slot not in wanted)
    if surplus and (owned is None or _overlap(owned, surplus)):
        return _changed(
            member, state=MemberState.UNREVOKED_PARTITIONS, assigned=keep, revoking=surplus
        )
    missing = wanted.difference(_slots(keep))
    free = missing.difference(_held_by_others(group, member)) if missing else missing
    epoch = group.assignment_epoch
    return _changed(
        member,
        epoch=epoch,
        previous_epoch=member.epoch if epoch != member.epoch else member.previous_epoch,
        state=(
            MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS
        ),
        assigned=_with(keep, free, epoch),
        revoking={},
    )


def _unsubscribe(member: Member, owned: Partitions | None, subscribed: frozenset[UUID]) -> Member:
    """A topic that a member has just unsubscribed from is taken from it at once, before there is
    a new target."""
    surplus = _select(member.assigned, lambda slot: slot[0] not in subscribed)
    if not surplus:
        return member
    keep = _select(member.assigned, lambda slot: slot[0] in subscribed)
    if owned is not None and not _overlap(owned, surplus):
        return _changed(member, assigned=keep)
    revoking = {topic_id: dict(epochs) for topic_id, epochs in member.revoking.items()}
    for topic_id, epochs in surplus.items():
        revoking.setdefault(topic_id, {}).update(epochs)
    return _changed(
        member, state=MemberState.UNREVOKED_PARTITIONS, assigned=keep, revoking=revoking
    )


def is_subset(owned: Partitions, held: Held) -> bool:
    return all(
        partition in held.get(topic_id, ())
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def _changed(member: Member, **fields: object) -> Member:
    changed = replace(member, **fields)  # type: ignore[arg-type]  # fields of Member, by name
    return member if changed == member else changed


def _overlap(owned: Partitions, held: Held) -> bool:
    return any(
        partition in held.get(topic_id, ())
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def _held_by_others(group: Group, member: Member) -> set[tuple[UUID, int]]:
    return {
        slot
        for other in group.members.values()
        if other.member_id != member.member_id
        for slot in other.holds()
    }


def _slots(held: Held) -> set[tuple[UUID, int]]:
    return {(topic_id, partition) for topic_id, epochs in held.items() for partition in epochs}


def _select(held: Held, wanted: Callable[[tuple[UUID, int]], bool]) -> dict[UUID, dict[int, int]]:
    selected: dict[UUID, dict[int, int]] = {}
    for topic_id, epochs in held.items():
        found = {each: epoch for each, epoch in epochs.items() if wanted((topic_id, each))}
        if found:
            selected[topic_id] = found
    return selected


def _with(held: Held, slots: set[tuple[UUID, int]], epoch: int) -> dict[UUID, dict[int, int]]:
    grown = {topic_id: dict(epochs) for topic_id, epochs in held.items()}
    for topic_id, partition in sorted(slots):
        grown.setdefault(topic_id, {})[partition] = epoch
    return grown
