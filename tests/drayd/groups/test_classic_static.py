"""Static members (group.instance.id, KIP-345): fencing, and restarts that nobody notices."""

from __future__ import annotations

from typing import Any

from drayd.groups.classic_events import Joined, JoinedMember, Leaver, LeaverResult
from drayd.groups.classic_state import Status
from protocol.errors import ErrorCode
from tests.drayd.groups.classic_play import SESSION_MS, Play


def stable(*instances: str, **settings: Any) -> Play:
    """A stable group of static members; "i1" has the id "m-i1". The first leads."""
    play = Play(**({"initial_rebalance_delay_ms": 10} | settings))
    for instance in instances:
        play.join(new_member_id=f"m-{instance}", instance_id=instance)
    play.pass_ms(10 * len(instances) + 10)
    play.sync_all(f"m-{instances[0]}")
    return play


def restart(play: Play, instance: str, **fields: Any) -> int:
    return play.join(new_member_id=f"new-{instance}", instance_id=instance, **fields)


def test_a_static_member_joins_without_a_second_request() -> None:
    play = Play()
    answer = play.joined(play.join(new_member_id="m", instance_id="i"))
    assert (answer.error, answer.member_id) == (ErrorCode.none, "m")
    assert answer.members == (JoinedMember("m", "i", b"r"),)


def test_a_follower_restarts_without_a_rebalance() -> None:
    play = stable("i1", "i2")
    answer = play.joined(restart(play, "i2"))
    assert answer == Joined(ErrorCode.none, "new-i2", 1, "consumer", "range", "m-i1")
    assert play.phase() is Status.STABLE and play.state.generation == 1
    assert play.synced(play.sync("new-i2", 1, instance_id="i2")).assignment == b"m-i2"
    assert play.record is not None
    assert [member.member_id for member in play.record.members] == ["m-i1", "new-i2"]


def test_a_leader_restarts_and_is_told_to_assign_nothing() -> None:
    play = stable("i1", "i2")
    answer = play.joined(restart(play, "i1"))
    assert answer.leader == answer.member_id == "new-i1"
    assert answer.skip_assignment and len(answer.members) == 2
    assert play.state.leader == "new-i1" and play.phase() is Status.STABLE


def test_an_older_leader_that_restarts_takes_itself_for_a_follower() -> None:
    play = stable("i1", "i2")
    answer = play.joined(restart(play, "i1", can_skip_assignment=False))
    assert answer == Joined(ErrorCode.none, "new-i1", 1, "consumer", "range", "m-i1")
    assert play.state.leader == "new-i1"


def test_the_former_self_is_fenced() -> None:
    play = stable("i1", "i2")
    restart(play, "i2")
    fenced = ErrorCode.fenced_instance_id
    assert play.beat("m-i2", 1, "i2") is fenced
    assert play.beat("m-i2", 1) is ErrorCode.unknown_member_id
    assert play.synced(play.sync("m-i2", 1, instance_id="i2")).error is fenced
    assert play.joined(play.join("m-i2", instance_id="i2")) == Joined(fenced, "m-i2")
    assert play.commit(1, "m-i2", instance_id="i2") is fenced
    assert play.leave(Leaver("m-i2", "i2")).results == (LeaverResult("m-i2", "i2", fenced),)
    assert play.beat("new-i2", 1, "i2") is ErrorCode.none


def test_an_instance_that_nobody_has() -> None:
    play = stable("i1")
    assert play.beat("m-i1", 1, "i9") is ErrorCode.unknown_member_id
    assert play.joined(play.join("m-i1", instance_id="i9")).error is ErrorCode.unknown_member_id


def test_a_restart_that_changes_the_protocol_rebalances() -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    play = Play()
    play.join(new_member_id="m", instance_id="i", protocols=both)
    play.sync("m", 1, instance_id="i")
    answer = play.joined(play.join(new_member_id="n", instance_id="i", protocols=both[::-1]))
    assert (answer.generation, answer.protocol_name) == (2, "sticky")


def test_a_restart_while_members_join_fences_the_one_that_waits() -> None:
    play = stable("i1", "i2")
    waits = play.join("m-i1", instance_id="i1")
    again = restart(play, "i1")
    assert play.joined(waits) == Joined(ErrorCode.fenced_instance_id, "m-i1")
    assert again in play.waiting()
    play.join("m-i2", instance_id="i2")
    assert play.joined(again).leader == "new-i1"


def test_a_restart_before_the_first_generation() -> None:
    play = Play(initial_rebalance_delay_ms=10)
    first = play.join(new_member_id="m", instance_id="i")
    second = play.join(new_member_id="n", instance_id="i")
    assert play.joined(first).error is ErrorCode.fenced_instance_id
    play.pass_ms(50)
    assert play.joined(second).leader == "n" and set(play.state.members) == {"n"}


def test_a_restart_while_others_wait_for_the_assignment_rebalances() -> None:
    play = Play(initial_rebalance_delay_ms=10)
    for instance in ("i1", "i2"):
        play.join(new_member_id=f"m-{instance}", instance_id=instance)
    play.pass_ms(50)
    own = play.sync("m-i2", 1, instance_id="i2")
    waits = restart(play, "i2")
    assert play.synced(own).error is ErrorCode.fenced_instance_id
    assert play.phase() is Status.PREPARING and waits in play.waiting()
    play.join("m-i1", instance_id="i1")
    assert play.joined(waits).generation == 2


def test_a_late_static_member_keeps_its_place() -> None:
    play = stable("i1", "i2")
    play.join("m-i1", instance_id="i1")
    for _ in range(12):
        play.pass_ms(5_000)
        play.beat("m-i2", 1, "i2")
    assert play.phase() is Status.COMPLETING and play.state.generation == 2
    assert set(play.state.members) == {"m-i1", "m-i2"}


def test_a_late_static_leader_loses_the_lead() -> None:
    play = stable("i1", "i2")
    waits = play.join("m-i2", instance_id="i2", protocols=(("range", b"changed"),))
    for _ in range(12):
        play.pass_ms(5_000)
        play.beat("m-i1", 1, "i1")
    assert play.joined(waits).leader == "m-i2"
    assert len(play.joined(waits).members) == 2


def test_without_anybody_to_lead_the_join_phase_goes_on() -> None:
    play = stable("i1", "i2")
    play.leave(Leaver("m-i1"))
    for _ in range(30):
        play.pass_ms(5_000)
        assert play.beat("m-i2", 1, "i2") is ErrorCode.rebalance_in_progress
    assert play.phase() is Status.PREPARING and play.state.generation == 1
    assert play.joined(play.join("m-i2", instance_id="i2")).generation == 2


def test_static_members_expire_like_others() -> None:
    play = stable("i1")
    play.pass_ms(SESSION_MS)
    assert play.phase() is Status.EMPTY
    assert play.joined(play.join("m-i1", instance_id="i1")).error is ErrorCode.unknown_member_id


def test_an_administrator_removes_by_instance() -> None:
    play = stable("i1", "i2")
    left = play.leave(Leaver("m-i1", "i2"), Leaver("", "i2"), Leaver("", "i9"), Leaver("", None))
    assert left.results == (
        LeaverResult("m-i1", "i2", ErrorCode.fenced_instance_id),
        LeaverResult("", "i2", ErrorCode.none),
        LeaverResult("", "i9", ErrorCode.unknown_member_id),
        LeaverResult("", None, ErrorCode.unknown_member_id),
    )
    assert set(play.state.members) == {"m-i1"}
    assert play.phase() is Status.PREPARING
