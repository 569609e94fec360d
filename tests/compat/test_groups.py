"""The judgement over a group's events finds what must not happen."""

from typing import Any

import pytest

from compat.groups import Event, Wrong, judge

NEVER_MS = 1e12


def _judge(
    *events: tuple[float, int, dict[str, Any]],
    ends: list[int],
    gone_ms: dict[int, float] | None = None,
    cut_off_ms: list[tuple[float, float]] | None = None,
) -> None:
    gone = {0: NEVER_MS, 1: NEVER_MS} | (gone_ms or {})
    judge([Event(*event) for event in events], ends, gone, cut_off_ms or [])


def _owned(*partitions: int) -> dict[str, Any]:
    return {"owned": list(partitions)}


def _read(partition: int, start: int, end: int) -> dict[str, Any]:
    return {"read": partition, "start": start, "end": end}


def test_a_partition_that_changes_hands_after_a_commit() -> None:
    _judge(
        (1, 0, _owned(0, 1)),
        (2, 0, _read(0, 0, 5)),
        (3, 0, _read(1, 0, 4)),
        (4, 0, {"committed": {"0": 5, "1": 4}}),
        (10, 0, _owned(0)),
        (20, 1, _owned(1)),
        (21, 1, _read(1, 4, 6)),
        ends=[5, 6],
    )


def test_what_was_not_committed_may_be_read_twice() -> None:
    _judge(
        (1, 0, _owned(0)),
        (2, 0, _read(0, 0, 5)),
        (3, 0, {"committed": {"0": 5}}),
        (4, 0, _read(0, 5, 9)),
        (100, 1, _owned(0)),
        (101, 1, _read(0, 5, 12)),
        ends=[12],
        gone_ms={0: 50},
    )


def test_what_was_committed_must_not_be_read_twice() -> None:
    with pytest.raises(Wrong, match="starts at 4 though 5 was committed"):
        _judge(
            (1, 0, _owned(0)),
            (2, 0, _read(0, 0, 5)),
            (3, 0, {"committed": {"0": 5}}),
            (10, 0, _owned()),
            (20, 1, _owned(0)),
            (21, 1, _read(0, 4, 6)),
            ends=[6],
        )


def test_a_skipped_record_is_found() -> None:
    with pytest.raises(Wrong, match="1 records skipped, at 3"):
        _judge((1, 0, _owned(0)), (2, 0, _read(0, 0, 3)), (3, 0, _read(0, 4, 6)), ends=[6])


def test_going_back_without_a_rebalance_is_found() -> None:
    with pytest.raises(Wrong, match="goes back to 2"):
        _judge((1, 0, _owned(0)), (2, 0, _read(0, 0, 3)), (3, 0, _read(0, 2, 4)), ends=[4])


def test_two_owners_at_once_are_found_unless_one_was_killed_or_cut_off() -> None:
    both = ((1, 0, _owned(0)), (100, 1, _owned(0)), (101, 1, _read(0, 0, 1)), (500, 0, _owned()))
    with pytest.raises(Wrong, match="owned by"):
        _judge(*both, ends=[1])
    _judge(*both[:3], ends=[1], gone_ms={0: 50})
    _judge(*both, ends=[1], cut_off_ms=[(90, 600)])
