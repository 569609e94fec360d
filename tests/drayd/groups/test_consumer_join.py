"""Joining, reconciling and leaving, as Apache Kafka 4.3.1 does it step by step."""

from __future__ import annotations

from typing import Any

import pytest

from drayd.groups.machine import GroupSettings
from tests.drayd.groups.consumer_play import AT_ONCE, Play, code


def test_the_first_member_gets_everything_at_once() -> None:
    play = Play(t=3)
    answer = play.join("m1", ["t"])
    assert (answer.member_id, answer.member_epoch) == ("m1", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert play.given(answer) == {"t": [0, 1, 2]}
    assert play.epochs() == (2, 2)
    assert play.state_name() == "Stable"


def test_heartbeats_that_change_nothing_store_nothing_and_say_nothing() -> None:
    play = Play(t=3)
    play.join("m1", ["t"])
    writes = play.writes
    for _ in range(5):
        play.pass_ms(5_000)
        assert play.given(play.beat("m1", 2)) is None
    assert play.beat("m1", 2, own={"t": [0, 1, 2]}).assignment is None
    assert play.beat("m1", 2, names=["t"]).assignment is None
    assert play.writes == writes


def test_a_member_that_says_everything_is_told_everything() -> None:
    play = Play(t=3)
    play.join("m1", ["t"])
    all_of_it: dict[str, Any] = {"own": {"t": [0, 1, 2]}, "rebalance_timeout_ms": 60_000}
    assert play.given(play.beat("m1", 2, names=["t"], **all_of_it)) == {"t": [0, 1, 2]}
    assert play.given(play.beat("m1", 2, regex="", **all_of_it)) == {"t": [0, 1, 2]}
    assert play.given(play.beat("m1", 2, **all_of_it)) is None


def test_a_partition_goes_to_its_next_owner_when_the_last_one_has_let_it_go() -> None:
    play = Play(t=6)
    play.join("m1", ["t"])
    second = play.join("m2", ["t"])
    assert (second.member_epoch, play.given(second)) == (3, {})
    assert play.state_name() == "Reconciling"
    # Told to give up half; stays in its epoch until it says that it did.
    told = play.beat("m1", 2)
    assert (told.member_epoch, play.given(told)) == (2, {"t": [0, 1, 2]})
    assert play.beat("m2", 3).assignment is None
    assert play.beat("m1", 2).assignment is None
    still = play.beat("m1", 2, own={"t": range(6)})
    assert (still.member_epoch, still.assignment) == (2, None)
    assert play.beat("m2", 3).assignment is None
    done = play.beat("m1", 2, own={"t": [0, 1, 2]})
    assert (done.member_epoch, done.assignment) == (3, None)
    assert play.given(play.beat("m2", 3)) == {"t": [3, 4, 5]}
    assert play.state_name() == "Stable"
    assert play.epochs() == (3, 3)


def test_partitions_are_given_one_by_one_as_they_become_free() -> None:
    play = Play(t=6)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    play.beat("m1", 2)
    play.beat("m1", 2, own={"t": [0, 1, 2]})
    play.beat("m2", 3)
    play.join("m3", ["t"])
    assert play.target("m3") == {"t": [2, 5]}
    play.beat("m2", 3, own={"t": [3, 4, 5]})
    play.beat("m2", 3, own={"t": [3, 4]})
    assert play.given(play.beat("m3", 4)) == {"t": [5]}
    play.beat("m1", 3)
    play.beat("m1", 3, own={"t": [0, 1]})
    assert play.given(play.beat("m3", 4)) == {"t": [2, 5]}
    assert play.state_name() == "Stable"


def test_a_new_target_while_a_member_is_giving_up() -> None:
    play = Play(t=6)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    play.beat("m1", 2)
    play.join("m3", ["t"])
    again = play.beat("m1", 2, own={"t": [0, 1, 2]})
    assert (again.member_epoch, play.given(again)) == (2, {"t": [0, 1]})
    # What it gave up first is free already.
    assert play.given(play.beat("m2", 3)) == {"t": [3, 4]}
    assert play.given(play.beat("m3", 4)) == {"t": [5]}
    play.beat("m1", 2, own={"t": [0, 1]})
    assert play.given(play.beat("m3", 4)) == {"t": [2, 5]}


def test_targets_are_computed_at_most_once_in_the_interval() -> None:
    play = Play(GroupSettings(consumer_assignment_interval_ms=1_000), t=6)
    play.join("m1", ["t"])
    second = play.join("m2", ["t"])
    assert (second.member_epoch, play.given(second)) == (2, {})
    play.pass_ms(999)
    assert play.beat("m2", 2).member_epoch == 2
    assert play.state_name() == "Assigning"
    play.pass_ms(1)
    assert play.beat("m2", 2).member_epoch == 3
    assert play.target("m1") == {"t": [0, 1, 2]}


def test_leaving() -> None:
    play = Play(t=4)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    left = play.beat("m1", -1)
    assert (left.member_id, left.member_epoch, left.heartbeat_interval_ms) == ("m1", -1, 0)
    assert play.state_name() == "Assigning"
    assert play.given(play.beat("m2", 3)) == {"t": [0, 1, 2, 3]}
    play.beat("m2", -1)
    assert play.state_name() == "Empty"
    assert play.epochs() == (5, 4)
    assert play.wake_ms is None
    assert code(play.beat("m2", -1)) == "unknown_member_id"
    assert play.join("m3", ["t"]).member_epoch == 6


def test_joining_again_gives_up_everything_at_once() -> None:
    play = Play(t=4)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    play.beat("m1", 2)
    again = play.join("m1", ["t"])
    assert (again.member_epoch, play.given(again)) == (3, {"t": [0, 1]})
    assert play.given(play.beat("m2", 3)) == {"t": [2, 3]}
    assert play.epochs() == (3, 3)


def test_the_server_makes_the_id_of_a_member_of_version_0() -> None:
    play = Play(t=1)
    answer = play.join("", ["t"], api_version=0, new_member_id="made")
    assert (answer.member_id, answer.member_epoch) == ("made", 2)
    assert code(play.join("", ["t"])) == "invalid_request"


def test_lost_answers() -> None:
    play = Play(t=2)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    play.beat("m1", 2)
    assert play.beat("m1", 2, own={"t": [0]}).member_epoch == 3
    # It didn't hear that, and says it again, as often as it takes.
    assert play.beat("m1", 2, own={"t": [0]}).member_epoch == 3
    assert play.beat("m1", 2, own={}).member_epoch == 3
    for wrong in ({"own": {"t": [0, 1]}}, {}):
        answer = play.beat("m1", 2, **wrong)
        assert answer.error.name == "fenced_member_epoch"
        assert answer.message == (
            "The consumer group member has a smaller member epoch (2) than the one known by the "
            "group coordinator (3). The member must abandon all its partitions and rejoin."
        )
    assert code(play.beat("m1", 1, own={})) == "fenced_member_epoch"
    ahead = play.beat("m1", 4, own={})
    assert ahead.error.name == "fenced_member_epoch"
    assert "a greater member epoch (4)" in (ahead.message or "")
    assert play.beat("m1", 3).error.name == "none"


def test_who_is_not_there() -> None:
    play = Play(t=1)
    for epoch, message in ((3, "Consumer group g not found."), (-1, "Group g not found.")):
        answer = play.beat("m1", epoch)
        assert (answer.error.name, answer.message) == ("group_id_not_found", message)
    assert play.stored is None
    play.join("m1", ["t"])
    for epoch in (2, -1):
        answer = play.beat("m9", epoch)
        assert answer.error.name == "unknown_member_id"
        assert answer.message == "Member m9 is not a member of group g."


def test_a_full_group() -> None:
    play = Play(GroupSettings(consumer_max_size=2, consumer_assignment_interval_ms=0), t=1)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    answer = play.join("m3", ["t"])
    assert answer.error.name == "group_max_size_reached"
    assert answer.message == "The consumer group has reached its maximum capacity of 2 members."
    assert code(play.join("m2", ["t"])) == "none"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        (
            {"rebalance_timeout_ms": -1},
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        ({"own": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"own": {"t": [0]}}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
    ],
)
def test_joins_that_are_wrong(fields: dict[str, Any], message: str) -> None:
    play = Play(t=1)
    answer = play.join("m1", **{"names": ["t"], **fields})
    assert (answer.error.name, answer.message) == ("invalid_request", message)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    assert not play.state.exists


def test_other_requests_that_are_wrong() -> None:
    play = Play(t=1)
    assert play.beat("m1", -2).message == "InstanceId can't be null."
    assert play.beat("m1", -3).message == "MemberEpoch is invalid."
    answer = play.join("m1", ["t"], assignor="mine")
    assert answer.error.name == "unsupported_assignor"
    assert answer.message == (
        "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


def test_most_votes_choose_the_assignor() -> None:
    play = Play(t=4)
    play.join("m2", ["t"])
    play.join("m1", ["t"], assignor="range")
    # Range goes by member id; uniform would have left 0 and 1 where they were.
    assert play.target("m1") == {"t": [0, 1]}
    play.join("m3", ["t"], assignor="uniform")
    play.join("m4", ["t"], assignor="uniform")
    assert play.state.group.assignor(AT_ONCE.consumer_assignors) == "uniform"


def test_members_that_subscribe_to_nothing() -> None:
    play = Play(t=2)
    answer = play.join("m1", [])
    assert (answer.member_epoch, play.given(answer)) == (1, {})
    later = play.beat("m1", 1, names=["t"])
    assert (later.member_epoch, play.given(later)) == (2, {"t": [0, 1]})
    off = play.beat("m1", 2, names=[])
    assert (off.member_epoch, play.given(off)) == (2, {})
    assert play.beat("m1", 2, own={}).member_epoch == 3
