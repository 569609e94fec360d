"""When committed offsets expire: as in Kafka (KIP-211), pure."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from drayd.groups.machine import Kind, Summary
from metadata.group_values import CommittedOffset

Offsets = Mapping[tuple[UUID, int], CommittedOffset]

EMPTY = "Empty"
STABLE = "Stable"
CONSUMERS = "consumer"
"""The protocol type whose members say which topics they read."""


def expired(
    offsets: Offsets,
    *,
    kind: Kind,
    summary: Summary,
    written_ms: int | None,
    topic_names: Mapping[UUID, str],
    now_ms: int,
    retention_ms: int,
) -> list[tuple[UUID, int]]:
    """The offsets to forget. `written_ms` is when the group's record changed, None if it has
    none; `topic_names` has the topics that exist. Times are of the wall clock."""
    since_ms = _counted_since(kind, summary, written_ms)
    if since_ms is None:
        return []
    kept = summary.subscriptions or frozenset()
    found = []
    for key, committed in offsets.items():
        if topic_names.get(key[0]) in kept:
            continue
        if committed.expire_ms >= 0:
            if now_ms >= committed.expire_ms:
                found.append(key)
        else:
            begin_ms = committed.committed_ms if since_ms < 0 else since_ms
            if now_ms - begin_ms >= retention_ms:
                found.append(key)
    return found


def _counted_since(kind: Kind, summary: Summary, written_ms: int | None) -> int | None:
    """The time that retention counts from: -1 for each offset's own commit, None for never."""
    if kind is Kind.CONSUMER or not summary.protocol_type:
        # A consumer group protects what it subscribes to; a group that never had a member
        # nothing.
        return -1
    if summary.state == EMPTY:
        return -1 if written_ms is None else written_ms
    if (
        summary.state == STABLE
        and summary.protocol_type == CONSUMERS
        and summary.subscriptions is not None
    ):
        return -1
    return None
