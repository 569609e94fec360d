"""`drayd admin groups`: list, describe with lag, reset offsets, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from drayd.client import EARLIEST, LATEST, ClientError
from drayd.client_groups import EMPTY, Described, GroupClient, Place


class Reset(NamedTuple):
    """Where to: one of the fields is set."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    shift: int | None = None
    time_ms: int | None = None


def new_offsets(
    reset: Reset,
    places: Iterable[Place],
    *,
    committed: Mapping[Place, int],
    earliest: Mapping[Place, int],
    latest: Mapping[Place, int],
    at_time: Mapping[Place, int],
) -> dict[Place, int]:
    """The offset that each partition gets; never outside of its log. Pure."""
    found = {}
    for place in places:
        if reset.earliest:
            wanted = earliest[place]
        elif reset.latest:
            wanted = latest[place]
        elif reset.offset is not None:
            wanted = reset.offset
        elif reset.time_ms is not None:
            later = at_time[place]
            # Nothing was written since: as with Kafka's tool, the end.
            wanted = later if later >= 0 else latest[place]
        else:
            if place not in committed:
                raise ClientError(
                    f"There is no committed offset of {place[0]}/{place[1]} to shift."
                )
            wanted = committed[place] + (reset.shift or 0)
        found[place] = min(max(wanted, earliest[place]), latest[place])
    return found


def list_groups(groups: GroupClient) -> list[dict[str, Any]]:
    return [
        {
            "group": each.group_id,
            "type": each.kind or "-",
            "state": each.state,
            "protocol": each.protocol or "-",
        }
        for each in groups.all()
    ]


def describe_group(groups: GroupClient, group_id: str) -> dict[str, Any]:
    group = _existing(groups, group_id)
    committed = groups.committed(group_id)
    owners = {place: member for member in group.members for place in member.partitions}
    places = sorted(committed.keys() | owners.keys())
    ends = _offsets(groups, places, LATEST)
    rows = []
    for place in places:
        offset, end, owner = committed.get(place), ends.get(place), owners.get(place)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": "-" if offset is None else offset,
                "end": "-" if end is None else end,
                "lag": "-" if offset is None or end is None else max(0, end - offset),
                "member": "-" if owner is None else owner.member_id,
                "host": "-" if owner is None else owner.host,
            }
        )
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor or "-",
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id or "-",
                "client": member.client_id or "-",
                "host": member.host,
                "partitions": len(member.partitions),
            }
            for member in group.members
        ],
        "partitions": rows,
    }


def reset_group(
    groups: GroupClient,
    group_id: str,
    reset: Reset,
    *,
    topics: Mapping[str, Sequence[int] | None],
    partitions_of: Callable[[str], list[int]],
    execute: bool,
) -> list[dict[str, Any]]:
    """`topics` names partitions, or with None all of a topic; if it is empty, all that have a
    committed offset are meant. Without `execute` nothing is changed."""
    group = groups.describe(group_id)
    if group is not None and group.state != EMPTY:
        raise ClientError(
            f'Can\'t reset the offsets of "{group_id}" while it has members: '
            f"it is {group.state}, and has to be {EMPTY}."
        )
    committed = groups.committed(group_id)
    places = [
        (topic, partition)
        for topic, chosen in topics.items()
        for partition in (partitions_of(topic) if chosen is None else chosen)
    ] or sorted(committed)
    at_time = {} if reset.time_ms is None else _offsets(groups, places, reset.time_ms)
    new = new_offsets(
        reset,
        places,
        committed=committed,
        earliest=_offsets(groups, places, EARLIEST),
        latest=_offsets(groups, places, LATEST),
        at_time=at_time,
    )
    if execute and new:
        groups.commit(group_id, new)
    return [
        {
            "topic": place[0],
            "partition": place[1],
            "old": committed.get(place, "-"),
            "new": offset,
        }
        for place, offset in sorted(new.items())
    ]


def parse_topics(texts: Iterable[str]) -> dict[str, Sequence[int] | None]:
    """`topic` or `topic:0,1`."""
    found: dict[str, Sequence[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        try:
            found[topic] = [int(number) for number in numbers.split(",")] if colon else None
        except ValueError:
            raise ClientError(
                f'--topic must be TOPIC or TOPIC:PARTITION,…, not "{text}".'
            ) from None
    return found


def _existing(groups: GroupClient, group_id: str) -> Described:
    group = groups.describe(group_id)
    if group is None:
        raise ClientError(f'There is no group "{group_id}".')
    return group


def _offsets(groups: GroupClient, places: Iterable[Place], timestamp: int) -> dict[Place, int]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    return {
        (topic, partition): offset
        for topic, partitions in by_topic.items()
        for partition, offset in groups.at(topic, partitions, timestamp).items()
    }
