"""What a new coordinator knows: nobody is thrown out, no generation changes."""

from __future__ import annotations

from drayd.groups.classic_events import Leaver
from drayd.groups.classic_state import Status
from protocol.errors import ErrorCode
from tests.drayd.groups.classic_play import REBALANCE_MS, SESSION_MS, Play


def test_a_stable_group_goes_on() -> None:
    play = Play()
    generation = play.stable("a", "b")
    play.pass_ms(SESSION_MS - 1)
    play.fail_over()
    play.pass_ms(SESSION_MS - 1)
    assert play.beat("a", generation) is ErrorCode.none
    assert play.beat("b", generation) is ErrorCode.none
    assert play.synced(play.sync("b", generation)).assignment == b"b"
    assert play.commit(generation, "a") is ErrorCode.none
    assert play.state.leader == "a"


def test_sessions_end_at_the_new_coordinator_too() -> None:
    play = Play()
    generation = play.stable("a", "b")
    play.fail_over()
    play.pass_ms(SESSION_MS - 1)
    play.beat("a", generation)
    play.pass_ms(1)
    assert set(play.state.members) == {"a"}


def test_a_rebalance_goes_on_where_members_join() -> None:
    play = Play()
    generation = play.stable("a", "b")
    play.leave("b")
    play.fail_over()
    assert play.phase() is Status.PREPARING
    assert play.beat("a", generation) is ErrorCode.rebalance_in_progress
    assert play.joined(play.join("a")).generation == generation + 1


def test_a_rebalance_goes_on_where_members_sync() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("a")
    play.join("b")
    play.sync("b", 3)
    play.fail_over()
    assert play.phase() is Status.COMPLETING
    assert play.beat("b", 3) is ErrorCode.none
    again = play.joined(play.join("a"))
    assert (again.generation, again.leader, len(again.members)) == (3, "a", 2)
    follower = play.sync("b", 3)
    play.sync("a", 3, assignments=(("b", b"B"),))
    assert play.synced(follower).assignment == b"B"


def test_who_never_syncs_is_removed_by_the_new_coordinator() -> None:
    play = Play()
    play.admitted("a")
    play.fail_over()
    for _ in range(10):
        play.pass_ms(REBALANCE_MS // 10)
        play.beat("a", 1)
    assert play.phase() is Status.EMPTY


def test_new_members_begin_again() -> None:
    play = Play()
    generation = play.stable("a")
    play.admitted("b")
    play.join(new_member_id="c")
    play.fail_over()
    assert play.joined(play.join("b")).error is ErrorCode.unknown_member_id
    assert play.joined(play.join("c")).error is ErrorCode.unknown_member_id
    assert play.joined(play.join("a")).generation == generation + 1


def test_a_static_member_that_came_back_is_known() -> None:
    play = Play()
    play.join(new_member_id="m", instance_id="i")
    play.sync("m", 1, instance_id="i", assignments=(("m", b"A"),))
    play.join(new_member_id="n", instance_id="i")
    play.fail_over()
    assert play.beat("m", 1, "i") is ErrorCode.fenced_instance_id
    assert play.synced(play.sync("n", 1, instance_id="i")).assignment == b"A"


def test_an_empty_group_stays_empty() -> None:
    play = Play()
    play.join(new_member_id="a")
    play.fail_over()
    assert play.exists() and play.phase() is Status.EMPTY
    play.stable("b")
    play.leave(Leaver("b"))
    play.fail_over()
    assert play.phase() is Status.EMPTY and play.state.generation == 2
    assert play.wake_ms is None


def test_a_rebalance_is_a_few_writes() -> None:
    play = Play(initial_rebalance_delay_ms=10)
    names = [f"m{at}" for at in range(30)]
    for name in names:
        play.admitted(name)
    play.pass_ms(500)
    play.sync_all("m0")
    assert play.writes == 3, "made, joined, synced"
    play.join("m0")
    for name in names[1:]:
        play.join(name, protocols=(("range", b"changed"),))
    play.sync_all("m0")
    assert play.writes == 6, "preparing, joined, synced"
    for name in names:
        assert play.beat(name, 2) is ErrorCode.none
    assert play.writes == 6
