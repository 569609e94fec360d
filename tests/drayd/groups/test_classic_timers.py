"""Deadlines: the first rebalance's delay, sessions, joining, syncing; and leaving."""

from __future__ import annotations

from drayd.groups.classic_draft import NEW_MEMBER_JOIN_TIMEOUT_MS
from drayd.groups.classic_events import Joined, Leaver, LeaverResult
from drayd.groups.classic_state import Status
from protocol.errors import ErrorCode
from tests.drayd.groups.classic_play import REBALANCE_MS, SESSION_MS, Play


def test_the_first_rebalance_waits_for_others() -> None:
    play = Play(initial_rebalance_delay_ms=3_000)
    waits = play.admitted("a")
    play.pass_ms(2_999)
    assert waits in play.waiting()
    play.pass_ms(1)
    assert play.joined(waits).generation == 1


def test_the_first_rebalance_gets_longer_while_members_come() -> None:
    play = Play(initial_rebalance_delay_ms=3_000)
    first = play.admitted("a")
    play.pass_ms(2_000)
    second = play.admitted("b")
    play.pass_ms(3_999)
    assert play.waiting() == {first, second}, "it was extended at 3 s"
    play.pass_ms(1)
    assert play.joined(first).generation == play.joined(second).generation == 1


def test_the_first_rebalance_does_not_grow_for_ever() -> None:
    play = Play(initial_rebalance_delay_ms=3_000)
    first = play.admitted("m0", rebalance_timeout_ms=7_000)
    for at in range(1, 7):
        play.pass_ms(999)
        play.admitted(f"m{at}", rebalance_timeout_ms=7_000)
    play.pass_ms(2_000)
    assert play.joined(first).generation == 1
    assert len(play.joined(first).members) == 7


def test_only_the_first_rebalance_waits() -> None:
    play = Play(initial_rebalance_delay_ms=3_000)
    play.admitted("a")
    play.pass_ms(3_000)
    play.sync_all("a")
    assert play.joined(play.join("a")).generation == 2


def test_a_silent_member_is_removed() -> None:
    play = Play()
    play.stable("a", "b")
    play.pass_ms(SESSION_MS - 1)
    assert play.beat("a", 2) is ErrorCode.none
    play.pass_ms(1)
    assert set(play.state.members) == {"a"}
    assert play.phase() is Status.PREPARING
    assert play.beat("b", 2) is ErrorCode.unknown_member_id
    answer = play.joined(play.join("a"))
    assert (answer.generation, answer.leader) == (3, "a")


def test_a_silent_leader_hands_over() -> None:
    play = Play()
    play.stable("a", "b", "c")
    for _ in range(2):
        play.pass_ms(SESSION_MS // 2)
        play.beat("b", play.state.generation)
        play.beat("c", play.state.generation)
    assert set(play.state.members) == {"b", "c"} and play.state.leader == "b"
    play.join("c")
    assert len(play.joined(play.join("b")).members) == 2


def test_the_last_member_leaves_an_empty_group_of_another_generation() -> None:
    play = Play()
    play.stable("a")
    play.pass_ms(SESSION_MS)
    assert play.phase() is Status.EMPTY and play.state.generation == 2
    assert play.record is not None and play.record.status == "Empty"
    assert play.wake_ms is None


def test_who_waits_is_alive() -> None:
    play = Play()
    play.stable("a", "b")
    waits = play.join("a")
    for _ in range(5):
        play.pass_ms(SESSION_MS - 1)
        play.beat("b", 2)
    assert waits in play.waiting() and set(play.state.members) == {"a", "b"}


def test_who_does_not_join_in_time_is_left_behind() -> None:
    play = Play()
    play.stable("a", "b")
    waits = play.join("a")
    for _ in range(10):
        play.pass_ms(REBALANCE_MS // 10)
        play.beat("b", 2)
    assert play.joined(waits).generation == 3
    assert set(play.state.members) == {"a"}


def test_the_longest_rebalance_timeout_counts() -> None:
    play = Play()
    play.stable("a", rebalance_timeout_ms=5_000)
    waits = play.admitted("b", rebalance_timeout_ms=15_000)
    play.pass_ms(9_000)
    play.beat("a", 1)
    play.pass_ms(5_999)
    assert waits in play.waiting()
    play.pass_ms(1)
    assert play.joined(waits).leader == "b"


def test_a_first_join_waits_five_minutes_at_most() -> None:
    play = Play()
    play.stable("a", rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    waits = play.admitted("b")
    for _ in range(60):
        play.pass_ms(NEW_MEMBER_JOIN_TIMEOUT_MS // 60)
        play.beat("a", 1)
    assert play.joined(waits) == Joined(ErrorCode.unknown_member_id, "")
    assert set(play.state.members) == {"a"}


def test_a_member_id_that_is_not_used_expires() -> None:
    play = Play()
    play.join(new_member_id="a")
    play.pass_ms(SESSION_MS)
    assert not play.state.pending and play.wake_ms is None
    assert play.joined(play.join("a")).error is ErrorCode.unknown_member_id


def test_an_expired_member_id_no_longer_holds_the_others_up() -> None:
    play = Play()
    play.stable("a")
    play.join(new_member_id="c")
    play.pass_ms(SESSION_MS // 2)
    waits = play.join("a")
    assert waits in play.waiting()
    play.pass_ms(SESSION_MS // 2)
    assert play.joined(waits).generation == 2


def test_who_does_not_sync_in_time_is_removed() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    play.join("b")
    waits = play.sync("b", 3)
    for _ in range(10):
        play.pass_ms(REBALANCE_MS // 10)
        play.beat("a", 3)
    assert play.synced(waits).error is ErrorCode.rebalance_in_progress
    assert set(play.state.members) == {"b"} and play.state.leader == "b"
    assert play.joined(play.join("b")).leader == "b"


def test_a_follower_that_never_syncs_is_removed_though_the_group_is_stable() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    play.join("b")
    play.sync("a", 3)
    assert play.phase() is Status.STABLE
    for _ in range(10):
        play.pass_ms(REBALANCE_MS // 10)
        play.beat("a", 3)
        play.beat("b", 3)
    assert set(play.state.members) == {"a"} and play.phase() is Status.PREPARING


def test_nobody_syncs() -> None:
    play = Play()
    play.admitted("a", rebalance_timeout_ms=SESSION_MS // 2)
    play.pass_ms(SESSION_MS // 2)
    assert play.phase() is Status.EMPTY and play.state.generation == 2


def test_a_silent_leader_while_its_assignment_is_awaited() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    play.join("b")
    waits = play.sync("b", 3)
    play.pass_ms(SESSION_MS)
    assert play.synced(waits).error is ErrorCode.rebalance_in_progress
    assert play.joined(play.join("b")).leader == "b"


def test_leaving() -> None:
    play = Play()
    play.stable("a", "b")
    left = play.leave(Leaver("a", reason="closing"), "x")
    assert left.results == (
        LeaverResult("a", None, ErrorCode.none),
        LeaverResult("x", None, ErrorCode.unknown_member_id),
    )
    assert play.phase() is Status.PREPARING and play.state.leader == "b"
    assert play.beat("b", 2) is ErrorCode.rebalance_in_progress
    assert play.beat("a", 2) is ErrorCode.unknown_member_id


def test_leaving_ends_what_one_waits_for() -> None:
    play = Play()
    play.stable("a", "b")
    waits = play.join("a")
    play.leave("a")
    assert play.joined(waits) == Joined(ErrorCode.unknown_member_id, "")
    play.join("b")
    waits = play.sync("b", 3)
    assert play.synced(waits).error is ErrorCode.none


def test_leaving_while_others_join_lets_them_go_on() -> None:
    play = Play()
    play.stable("a", "b")
    waits = play.join("a")
    play.leave("b")
    assert play.joined(waits).generation == 3


def test_the_leader_leaves_while_its_assignment_is_awaited() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    play.join("b")
    waits = play.sync("b", 3)
    play.leave("a")
    assert play.synced(waits).error is ErrorCode.rebalance_in_progress
    assert play.joined(play.join("b")).generation == 4


def test_a_pending_member_leaves() -> None:
    play = Play()
    play.stable("a")
    play.join(new_member_id="c")
    waits = play.join("a")
    assert waits in play.waiting()
    assert play.leave("c").results[0].error is ErrorCode.none
    assert play.joined(waits).generation == 2


def test_nobody_leaves_twice() -> None:
    play = Play()
    play.stable("a")
    assert [each.error for each in play.leave("a", "a").results] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    assert play.phase() is Status.EMPTY


def test_strangers_that_leave_change_nothing() -> None:
    play = Play()
    play.stable("a")
    play.leave("x")
    play.leave()
    assert play.phase() is Status.STABLE


def test_a_pending_member_that_leaves_makes_the_others_join_as_in_kafka() -> None:
    play = Play()
    play.stable("a")
    play.join(new_member_id="c")
    play.leave("c")
    assert play.phase() is Status.PREPARING


def test_everyone_leaves_before_the_first_generation() -> None:
    play = Play(initial_rebalance_delay_ms=3_000)
    waits = play.admitted("a")
    play.leave("a")
    assert play.joined(waits).error is ErrorCode.unknown_member_id
    play.pass_ms(3_000)
    assert play.phase() is Status.EMPTY
    play.admitted("b")
    play.pass_ms(3_000)
    assert play.state.leader == "b"
