"""The server-side assignors of KIP-848: who is to have which partition. Pure.

- `uniform`: every member the same number of partitions, give or take one, and as few moves as
  that allows. Where members subscribe to different topics, nobody has two partitions more than
  somebody who could take one of them.
- `range`: per topic, runs of neighbouring partitions in the order of the members; so topics with
  equal partition counts and subscribers are divided alike (co-partitioned). It moves freely.

Both give each partition of each subscribed topic to exactly one member that subscribes to it, and
the same input always gives the same output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic; no topic is there with none."""
_Slot: TypeAlias = tuple[UUID, int]


class Candidate(NamedTuple):
    """A member, as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    """The topics that it subscribes to and that exist."""
    current: Partitions
    """What it was to have until now: its target, not what it holds at the moment."""


Assignor: TypeAlias = Callable[[Sequence[Candidate], Mapping[UUID, int]], dict[str, Partitions]]


def assign_range(
    candidates: Sequence[Candidate], counts: Mapping[UUID, int]
) -> dict[str, Partitions]:
    # Static members first, by their instance id: they keep their place when they come back
    # with another member id.
    ordered = sorted(
        candidates, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )
    given: dict[str, dict[UUID, frozenset[int]]] = {each.member_id: {} for each in candidates}
    for topic_id, count in counts.items():
        subscribers = [each.member_id for each in ordered if topic_id in each.topics]
        if not subscribers:
            continue
        least, extras = divmod(count, len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + least + (position < extras)
            if end > start:
                given[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(given)


def assign_uniform(
    candidates: Sequence[Candidate], counts: Mapping[UUID, int]
) -> dict[str, Partitions]:
    if not candidates:
        return {}
    ordered = sorted(candidates, key=lambda each: each.member_id)
    held, free = _keep(ordered, counts)
    if all(each.topics == ordered[0].topics for each in ordered):
        _divide_equally(held, free)
    else:
        _divide_by_subscription(ordered, counts, held, free)
    return {member_id: _by_topic(slots) for member_id, slots in held.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _keep(
    ordered: Sequence[Candidate], counts: Mapping[UUID, int]
) -> tuple[dict[str, list[_Slot]], list[_Slot]]:
    """What each member may go on having, and the partitions that nobody has; both in order."""
    taken: set[_Slot] = set()
    held: dict[str, list[_Slot]] = {}
    for each in ordered:
        mine = [
            (topic_id, partition)
            for topic_id in sorted(each.current)
            if topic_id in each.topics
            for partition in sorted(each.current[topic_id])
            if partition < counts.get(topic_id, 0) and (topic_id, partition) not in taken
        ]
        taken.update(mine)
        held[each.member_id] = mine
    wanted = frozenset[UUID]().union(*(each.topics for each in ordered))
    free = [
        (topic_id, partition)
        for topic_id in sorted(wanted)
        for partition in range(counts.get(topic_id, 0))
        if (topic_id, partition) not in taken
    ]
    return held, free


def _divide_equally(held: dict[str, list[_Slot]], free: list[_Slot]) -> None:
    """Everyone may have everything: each gets `least`, and `extras` of them one more. Who has
    that one already keeps it; what is left of the extras goes to the last members."""
    total = sum(map(len, held.values())) + len(free)
    least, extras = divmod(total, len(held))
    for slots in held.values():
        quota = least
        if len(slots) > least and extras:
            quota, extras = least + 1, extras - 1
        free.extend(slots[quota:])
        del slots[quota:]
    free.sort()
    room: list[tuple[list[_Slot], int]] = []
    for slots in reversed(held.values()):
        quota = least
        if len(slots) <= least and extras:
            quota, extras = least + 1, extras - 1
        room.append((slots, quota))
    start = 0
    for slots, quota in reversed(room):
        end = start + max(0, quota - len(slots))
        slots.extend(free[start:end])
        start = end


def _divide_by_subscription(
    ordered: Sequence[Candidate],
    counts: Mapping[UUID, int],
    held: dict[str, list[_Slot]],
    free: list[_Slot],
) -> None:
    subscribers: dict[UUID, list[str]] = {}
    for each in ordered:
        for topic_id in each.topics:
            subscribers.setdefault(topic_id, []).append(each.member_id)
    # Topics that few could take come first, while those few have little.
    by_choice = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    rank = {topic_id: position for position, topic_id in enumerate(by_choice)}
    for slot in sorted(free, key=lambda slot: (rank[slot[0]], slot[1])):
        least_id = min(subscribers[slot[0]], key=lambda member_id: len(held[member_id]))
        held[least_id].append(slot)
    # Each move takes from one who has at least two more than the taker, so the sum of the
    # squares of the loads falls, and this ends.
    owned = {
        member_id: {topic_id: sorted(_of(slots, topic_id)) for topic_id in {s[0] for s in slots}}
        for member_id, slots in held.items()
    }
    load = {member_id: len(slots) for member_id, slots in held.items()}
    moved = True
    while moved:
        moved = False
        for topic_id in by_choice:
            while _move_one(topic_id, subscribers[topic_id], owned, load):
                moved = True
    for member_id, topics in owned.items():
        held[member_id] = [(topic, each) for topic, parts in topics.items() for each in parts]


def _move_one(
    topic_id: UUID,
    subscribers: list[str],
    owned: dict[str, dict[UUID, list[int]]],
    load: dict[str, int],
) -> bool:
    taker = min(subscribers, key=load.__getitem__)
    givers = [each for each in subscribers if owned[each].get(topic_id)]
    if not givers:
        return False
    giver = max(givers, key=load.__getitem__)
    if load[giver] < load[taker] + 2:
        return False
    owned[taker].setdefault(topic_id, []).append(owned[giver][topic_id].pop())
    owned[taker][topic_id].sort()
    load[giver] -= 1
    load[taker] += 1
    return True


def _of(slots: list[_Slot], topic_id: UUID) -> list[int]:
    return [partition for topic, partition in slots if topic == topic_id]


def _by_topic(slots: list[_Slot]) -> dict[UUID, frozenset[int]]:
    topics: dict[UUID, set[int]] = {}
    for topic_id, partition in slots:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(topics[topic_id]) for topic_id in sorted(topics)}
