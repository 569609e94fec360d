"""SyncGroup and Heartbeat, and whose commits are taken."""

from __future__ import annotations

from typing import Any

import pytest

from drayd.groups import classic
from drayd.groups.classic_events import Synced
from drayd.groups.classic_state import Described, DescribedMember, Status, described
from drayd.groups.consumer_events import Beat, BeatAnswer
from protocol.errors import ErrorCode
from tests.drayd.groups.classic_play import Play


def completing(*names: str) -> Play:
    """Everyone has generation 1, nobody synced."""
    play = Play(initial_rebalance_delay_ms=10)
    for name in names:
        play.admitted(name)
    play.pass_ms(20)
    return play


def test_followers_wait_for_the_leader() -> None:
    play = completing("a", "b", "c")
    follower = play.sync("b", 1)
    assert follower in play.waiting()
    leader = play.sync("a", 1, assignments=(("a", b"A"), ("b", b"B")))
    assert play.synced(follower) == Synced(ErrorCode.none, "consumer", "range", b"B")
    assert play.synced(leader).assignment == b"A"
    assert play.phase() is Status.STABLE
    late = play.sync("c", 1)
    assert play.synced(late) == Synced(ErrorCode.none, "consumer", "range", b"")


def test_an_assignment_can_be_asked_for_again() -> None:
    play = Play()
    play.stable("a", "b")
    assert play.synced(play.sync("b", play.state.generation)).assignment == b"b"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "x"}, ErrorCode.unknown_member_id),
        ({"instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"generation": 0}, ErrorCode.illegal_generation),
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_name": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.none),
    ],
)
def test_who_may_sync(fields: dict[str, Any], error: ErrorCode) -> None:
    play = Play()
    play.stable("a")
    token = play.sync(**{"member_id": "a", "generation": 1, **fields})
    assert play.synced(token).error is error


def test_a_group_that_does_not_exist_knows_nobody() -> None:
    play = Play()
    assert play.synced(play.sync("a", 1)).error is ErrorCode.unknown_member_id
    assert play.beat("a", 1) is ErrorCode.unknown_member_id
    (result,) = play.leave("a").results
    assert result.error is ErrorCode.unknown_member_id
    assert not play.exists() and play.writes == 0


def test_sync_while_others_join() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    assert play.synced(play.sync("b", 2)).error is ErrorCode.rebalance_in_progress


def test_a_second_sync_answers_the_first() -> None:
    play = completing("a", "b")
    first = play.sync("b", 1)
    second = play.sync("b", 1)
    assert play.synced(first).error is ErrorCode.rebalance_in_progress
    play.sync("a", 1, assignments=(("b", b"B"),))
    assert play.synced(second).assignment == b"B"


def test_heartbeats() -> None:
    play = completing("a", "b")
    assert play.beat("a", 1) is ErrorCode.none
    play.sync_all("a")
    writes = play.writes
    assert play.beat("a", 1) is ErrorCode.none
    assert play.beat("a", 0) is ErrorCode.illegal_generation
    assert play.beat("a", 2) is ErrorCode.illegal_generation
    assert play.beat("x", 1) is ErrorCode.unknown_member_id
    assert play.beat("a", 1, "instance") is ErrorCode.unknown_member_id
    assert play.writes == writes
    play.join("a")
    assert play.beat("b", 1) is ErrorCode.rebalance_in_progress


def test_a_pending_member_is_not_one_yet() -> None:
    play = Play()
    play.join(new_member_id="a")
    assert play.beat("a", 0) is ErrorCode.unknown_member_id
    assert play.synced(play.sync("a", 0)).error is ErrorCode.unknown_member_id


def test_commits_of_a_group_without_members() -> None:
    play = Play()
    assert play.commit(-1) is ErrorCode.none
    assert play.commit(0) is ErrorCode.unknown_member_id
    play.stable("a")
    play.leave("a")
    assert play.phase() is Status.EMPTY
    assert play.commit(-1) is ErrorCode.none
    assert play.commit(-1, "a") is ErrorCode.none
    assert play.commit(2, "a") is ErrorCode.unknown_member_id


def test_commits_of_members() -> None:
    play = Play()
    play.stable("a", "b")
    assert play.commit(2, "a") is ErrorCode.none
    assert play.commit(1, "a") is ErrorCode.illegal_generation
    assert play.commit(2, "x") is ErrorCode.unknown_member_id
    assert play.commit(2, "a", instance_id="i") is ErrorCode.unknown_member_id
    assert play.commit(-1, "a") is ErrorCode.illegal_generation
    assert play.commit(-1) is ErrorCode.unknown_member_id
    assert play.commit(-1, transactional=True) is ErrorCode.none
    play.join("a")
    assert play.commit(2, "b") is ErrorCode.none, "it still owns what it commits"
    play.join("b")
    assert play.commit(3, "b") is ErrorCode.rebalance_in_progress
    assert play.commit(2, "b") is ErrorCode.illegal_generation


def test_a_commit_renews_the_session() -> None:
    play = Play()
    play.stable("a")
    for _ in range(5):
        play.pass_ms(9_000)
        assert play.commit(1, "a") is ErrorCode.none
    play.pass_ms(9_999)
    assert "a" in play.state.members
    play.pass_ms(1)
    assert "a" not in play.state.members


def test_members_of_the_other_protocol_are_refused() -> None:
    play = Play()

    def answer(member_epoch: int) -> str | None:
        beat = Beat(group_id="g", member_id="m", member_epoch=member_epoch)
        found = play.answer(play.ask(beat), BeatAnswer)
        assert found.error is ErrorCode.group_id_not_found
        return found.message

    assert answer(0) == "Consumer group g not found."
    play.stable("a")
    assert answer(1) == "Group g is not a consumer group."
    refusal = "because online upgrade is disabled."
    assert answer(0) == f"Cannot upgrade classic group g to consumer group {refusal}"
    assert play.phase() is Status.STABLE and play.writes == 3


def test_what_describe_shows() -> None:
    play = Play()
    play.stable("a", client_id="c", client_host="/h")
    assert described(play.state) == Described(
        "range", (DescribedMember("a", None, "c", "/h", b"r", b"a"),)
    )
    play.join("a")
    assert described(play.state) == Described(
        "", (DescribedMember("a", None, "c", "/h", b"", b"a"),)
    )
    play.join("a", protocols=(("range", b"x"),))
    assert described(play.state).members[0].assignment == b""


def test_what_a_group_says_of_itself() -> None:
    play = Play()
    assert classic.summary(play.state).idle
    play.join(new_member_id="a", protocol_type="connect")
    assert not classic.summary(play.state).idle, "somebody is about to join"
    play.join("a", protocol_type="connect")
    summary = classic.summary(play.state)
    assert (summary.state, summary.protocol_type) == ("CompletingRebalance", "connect")
    assert (summary.members, summary.idle, summary.subscriptions) == (1, False, None)
    play.leave("a")
    assert classic.summary(play.state).idle
    assert classic.summary(play.state).subscriptions == frozenset()


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\0\1\0\0\0\2\0\1t\0\2uv\xff\xff\xff\xff", {"t", "uv"}),
        (b"\0\0\0\0\0\0\xff\xff\xff\xff", set()),
        (b"\0\1\0\0\0\2\0\1t\0\2u", None),
        (b"\xff\xff\0\0\0\0", None),
        (b"\0\1\0\0\0\1\0\1\xff", None),
        (b"", None),
    ],
)
def test_subscriptions_of_consumers_are_read(metadata: bytes, topics: set[str] | None) -> None:
    play = Play()
    play.stable("a", protocols=(("range", metadata),))
    assert classic.summary(play.state).subscriptions == topics
    play.fail_over()
    assert classic.summary(play.state).subscriptions == topics
    play.admitted("b", protocols=(("range", metadata),))
    assert classic.summary(play.state).subscriptions is None, "it is about to change"
