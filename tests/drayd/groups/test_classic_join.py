"""JoinGroup of dynamic members: ids, protocols, generations, leaders, limits."""

from __future__ import annotations

from typing import Any

import pytest

from drayd.groups.classic_events import Joined, JoinedMember
from drayd.groups.classic_state import Status
from protocol.errors import ErrorCode
from tests.drayd.groups.classic_play import Play

BOTH = (("range", b"r"), ("sticky", b"s"))


def test_a_dynamic_member_must_come_back_with_its_id() -> None:
    play = Play()
    first = play.joined(play.join(new_member_id="a"))
    assert first == Joined(ErrorCode.member_id_required, "a")
    assert play.phase() is Status.EMPTY and play.state.pending
    second = play.joined(play.join("a"))
    assert second == Joined(
        ErrorCode.none,
        "a",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        members=(JoinedMember("a", None, b"r"),),
    )
    assert play.phase() is Status.COMPLETING and not play.state.pending


def test_an_old_client_joins_at_once() -> None:
    play = Play()
    answer = play.joined(play.join(new_member_id="a", id_required=False))
    assert (answer.error, answer.member_id, answer.leader) == (ErrorCode.none, "a", "a")


def test_only_somebody_without_an_id_makes_a_group() -> None:
    play = Play()
    assert play.joined(play.join("stranger")) == Joined(ErrorCode.unknown_member_id, "stranger")
    assert not play.exists() and play.writes == 0
    play.join()
    assert play.exists() and play.writes == 1
    assert play.joined(play.join("stranger")).error is ErrorCode.unknown_member_id


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": ()}])
def test_the_first_member_must_offer_something(fields: dict[str, Any]) -> None:
    play = Play()
    answer = play.joined(play.join(**fields))
    assert answer == Joined(ErrorCode.inconsistent_group_protocol, "")


@pytest.mark.parametrize(
    "fields",
    [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}, {"protocols": ()}],
)
def test_members_must_agree_on_a_protocol(fields: dict[str, Any]) -> None:
    play = Play()
    generation = play.stable("a")
    for member_id in ("", "a"):
        answer = play.joined(play.join(member_id, **fields))
        assert answer == Joined(ErrorCode.inconsistent_group_protocol, member_id)
    assert play.state.generation == generation and play.phase() is Status.STABLE


def test_the_protocol_is_chosen_by_vote() -> None:
    play = Play()
    play.stable("a", protocols=(*BOTH, ("own", b"")))
    for name in ("b", "c"):
        play.admitted(name, protocols=BOTH[::-1])
    assert play.joined(play.join("a", protocols=BOTH)).protocol_name == "sticky"


def test_a_protocol_that_one_member_lacks_gets_no_votes() -> None:
    play = Play(initial_rebalance_delay_ms=10)
    tokens = [play.admitted(name, protocols=BOTH) for name in "ab"]
    tokens.append(play.admitted("c", protocols=(("sticky", b"c"),)))
    play.pass_ms(20)
    assert {play.joined(token).protocol_name for token in tokens} == {"sticky"}
    members = {member.member_id: member.metadata for member in play.joined(tokens[0]).members}
    assert members == {"a": b"s", "b": b"s", "c": b"c"}


def test_only_the_leader_is_told_of_the_others() -> None:
    play = Play(initial_rebalance_delay_ms=10)
    tokens = [play.admitted(name) for name in "abc"]
    play.pass_ms(20)
    answers = [play.joined(token) for token in tokens]
    assert [len(answer.members) for answer in answers] == [3, 0, 0]
    assert {answer.leader for answer in answers} == {"a"}
    assert {answer.generation for answer in answers} == {1}


def test_a_new_member_of_a_stable_group_waits_for_the_others() -> None:
    play = Play()
    play.stable("a")
    new = play.admitted("b")
    assert play.phase() is Status.PREPARING and new in play.waiting()
    assert play.beat("a", 1) is ErrorCode.rebalance_in_progress
    leader = play.join("a")
    assert play.joined(new).generation == play.joined(leader).generation == 2
    assert play.joined(leader).leader == "a"


def test_a_pending_member_holds_the_join_phase_up() -> None:
    play = Play()
    play.stable("a")
    play.join(new_member_id="c")
    play.admitted("b")
    play.join("a")
    assert play.phase() is Status.PREPARING
    play.join("c")
    assert play.phase() is Status.COMPLETING
    assert set(play.state.members) == {"a", "b", "c"}


def test_a_follower_that_joins_again_gets_the_present_generation() -> None:
    play = Play()
    generation = play.stable("a", "b")
    answer = play.joined(play.join("b"))
    assert (answer.generation, answer.leader, answer.members) == (generation, "a", ())
    assert play.phase() is Status.STABLE


def test_a_follower_that_offers_something_else_starts_a_rebalance() -> None:
    play = Play()
    play.stable("a", "b")
    waits = play.join("b", protocols=(("range", b"changed"),))
    assert play.phase() is Status.PREPARING and waits in play.waiting()


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    play = Play()
    generation = play.stable("a", "b")
    waits = play.join("a")
    assert waits in play.waiting()
    play.join("b")
    assert play.joined(waits).generation == generation + 1


def test_a_lone_leader_that_joins_again_has_its_new_generation_at_once() -> None:
    play = Play()
    generation = play.stable("a")
    assert play.joined(play.join("a")).generation == generation + 1


def test_while_completing_a_member_hears_again_what_it_missed() -> None:
    play = Play(initial_rebalance_delay_ms=10)
    tokens = [play.admitted(name) for name in "ab"]
    play.pass_ms(20)
    assert play.joined(play.join("a")) == play.joined(tokens[0])
    assert play.joined(play.join("b")) == play.joined(tokens[1])
    assert play.phase() is Status.COMPLETING


def test_while_completing_a_member_that_changed_starts_again() -> None:
    play = Play(initial_rebalance_delay_ms=10)
    for name in "ab":
        play.admitted(name)
    play.pass_ms(20)
    waiting_sync = play.sync("b", 1)
    play.join("a", protocols=(("range", b"changed"),))
    assert play.phase() is Status.PREPARING
    assert play.synced(waiting_sync).error is ErrorCode.rebalance_in_progress


def test_a_new_member_while_completing_starts_again() -> None:
    play = Play()
    play.joined(play.admitted("a"))
    waiting_sync = play.admitted("b")
    assert play.phase() is Status.PREPARING and waiting_sync in play.waiting()
    assert play.joined(play.join("a")).generation == 2


def test_a_second_join_of_a_member_answers_its_first() -> None:
    play = Play()
    play.stable("a", "b")
    first = play.join("a")
    second = play.join("a")
    assert play.joined(first).error is ErrorCode.rebalance_in_progress
    play.join("b")
    assert play.joined(second).error is ErrorCode.none


def test_the_group_has_a_size() -> None:
    play = Play(max_size=2)
    play.stable("a", "b")
    assert play.joined(play.join()) == Joined(ErrorCode.group_max_size_reached, "")
    assert play.phase() is Status.STABLE
    assert play.joined(play.join("b")).error is ErrorCode.none


def test_who_comes_last_is_turned_away() -> None:
    play = Play(max_size=3)
    play.stable("a", "b", "c")
    play.settings = Play(max_size=2).settings
    play.join("a")
    play.join("b")
    answer = play.joined(play.join("c"))
    assert answer == Joined(ErrorCode.group_max_size_reached, "")
    assert set(play.state.members) == {"a", "b"} and play.phase() is Status.COMPLETING


def test_ids_that_are_pending_are_not_counted_in_an_empty_group() -> None:
    play = Play(max_size=1)
    play.join(new_member_id="a")
    play.join(new_member_id="b")
    assert play.joined(play.join("a")).error is ErrorCode.none
    assert play.joined(play.join("b")).error is ErrorCode.group_max_size_reached
    assert not play.state.pending
