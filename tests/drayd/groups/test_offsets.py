"""When committed offsets expire (KIP-211)."""

from __future__ import annotations

from uuid import UUID

import pytest

from drayd.groups.machine import Kind, Summary
from drayd.groups.offsets import expired
from metadata.group_values import CommittedOffset

TOPIC, OTHER, GONE = UUID(int=1), UUID(int=2), UUID(int=3)
NAMES = {TOPIC: "topic", OTHER: "other"}
COMMITTED_MS = 1_000_000
RETENTION_MS = 60_000
OLD_MS = COMMITTED_MS + RETENTION_MS


def summary(state: str, kind: str = "consumer", *topics: str) -> Summary:
    members = 0 if state == "Empty" else 1
    return Summary(state, kind, members, frozenset(topics) if topics else None, not members)


def gone(
    of: Summary, now_ms: int, *, kind: Kind = Kind.CLASSIC, written_ms: int | None = None
) -> set[UUID]:
    offsets = {(topic, 0): CommittedOffset(5, 0, "", COMMITTED_MS) for topic in (TOPIC, OTHER)}
    found = expired(
        offsets,
        kind=kind,
        summary=of,
        written_ms=written_ms,
        topic_names=NAMES,
        now_ms=now_ms,
        retention_ms=RETENTION_MS,
    )
    return {topic for topic, _ in found}


def test_without_members_ever_each_offset_counts_for_itself() -> None:
    simple = summary("Empty", "")
    assert gone(simple, OLD_MS - 1) == set()
    assert gone(simple, OLD_MS) == {TOPIC, OTHER}


def test_an_empty_group_counts_from_when_it_became_empty() -> None:
    empty_ms = COMMITTED_MS + 30_000
    assert gone(summary("Empty"), OLD_MS, written_ms=empty_ms) == set()
    assert gone(summary("Empty"), OLD_MS + 30_000, written_ms=empty_ms) == {TOPIC, OTHER}


def test_a_stable_group_keeps_what_it_reads() -> None:
    assert gone(summary("Stable", "consumer", "topic"), OLD_MS, written_ms=0) == {OTHER}
    consumer = summary("Assigning", "consumer", "topic")
    assert gone(consumer, OLD_MS, kind=Kind.CONSUMER, written_ms=0) == {OTHER}


@pytest.mark.parametrize(
    "of",
    [
        summary("PreparingRebalance", "consumer", "topic"),
        summary("CompletingRebalance", "consumer", "topic"),
        summary("Stable", "connect"),
        summary("Stable", "consumer"),
    ],
)
def test_nothing_expires_when_nobody_can_say_what_is_read(of: Summary) -> None:
    assert gone(of, OLD_MS * 10, written_ms=0) == set()


def test_a_commit_may_bring_its_own_retention() -> None:
    offsets = {
        (TOPIC, 0): CommittedOffset(5, 0, "", COMMITTED_MS, COMMITTED_MS + 10),
        (GONE, 0): CommittedOffset(5, 0, "", COMMITTED_MS, OLD_MS * 2),
    }

    def at(now_ms: int) -> list[tuple[UUID, int]]:
        return expired(
            offsets,
            kind=Kind.CLASSIC,
            summary=summary("Empty", ""),
            written_ms=None,
            topic_names=NAMES,
            now_ms=now_ms,
            retention_ms=RETENTION_MS,
        )

    assert at(COMMITTED_MS + 9) == []
    assert at(COMMITTED_MS + 10) == [(TOPIC, 0)]
    assert at(OLD_MS * 2) == [(TOPIC, 0), (GONE, 0)]
