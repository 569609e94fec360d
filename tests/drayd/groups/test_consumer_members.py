"""Static members, sessions, revocations that take too long, offsets, and what a failover keeps."""

from __future__ import annotations

from drayd.groups import classic_events as classic
from drayd.groups import consumer
from drayd.groups.consumer_state import MemberState
from drayd.groups.machine import GroupSettings, TopicsChanged
from protocol.errors import ErrorCode
from tests.drayd.groups.consumer_play import Play, code

SESSION_MS = 45_000


# -- static members ------------------------------------------------------------------------------


def test_an_instance_id_is_taken_while_its_member_is_there() -> None:
    play = Play(t=2)
    play.join("m1", ["t"], instance_id="i1")
    for member_id in ("m2", "m1"):
        answer = play.join(member_id, ["t"], instance_id="i1")
        assert answer.error.name == "unreleased_instance_id"
        assert answer.message == (
            f"Static member {member_id} with instance id i1 cannot join the group "
            "because the instance id is owned by m1 member."
        )
    fenced = play.beat("m9", 2, instance_id="i1")
    assert fenced.error.name == "fenced_instance_id"
    assert fenced.message == "Static member m9 with instance id i1 was fenced by member m1."
    unknown = play.beat("m1", 2, instance_id="i7")
    assert (unknown.error.name, unknown.message) == (
        "unknown_member_id",
        "Instance id i7 is unknown.",
    )


def test_a_static_member_that_comes_back_finds_its_partitions() -> None:
    play = Play(t=4)
    play.join("m1", ["t"], instance_id="i1")
    play.join("m2", ["t"])
    play.beat("m1", 2)
    play.beat("m1", 2, own={"t": [0, 1]})
    play.beat("m2", 3)
    assert play.beat("m1", -2, instance_id="i1").member_epoch == -2
    assert play.state_name() == "Reconciling"
    assert play.beat("m2", 3).assignment is None
    assert code(play.beat("m1", 3, instance_id="i1")) == "fenced_member_epoch"
    back = play.join("m3", ["t"], instance_id="i1")
    assert (back.member_epoch, play.given(back)) == (3, {"t": [0, 1]})
    assert play.epochs() == (3, 3)
    assert play.state.group.members.keys() == {"m2", "m3"}
    assert code(play.beat("m1", 3)) == "unknown_member_id"
    assert code(play.beat("m1", 3, instance_id="i1")) == "fenced_instance_id"


def test_a_static_member_that_goes_away_has_let_go_what_it_was_to_give_up() -> None:
    play = Play(t=4)
    play.join("m1", ["t"], instance_id="i1")
    play.join("m2", ["t"])
    play.beat("m1", 2)
    play.beat("m1", -2, instance_id="i1")
    assert play.given(play.beat("m2", 3)) == {"t": [2, 3]}
    assert play.given(play.join("m3", ["t"], instance_id="i1")) == {"t": [0, 1]}
    assert play.state_name() == "Stable"


def test_a_static_member_that_stays_away_is_removed() -> None:
    play = Play(t=4)
    play.join("m1", ["t"], instance_id="i1")
    play.beat("m1", -2, instance_id="i1")
    play.pass_ms(SESSION_MS - 1)
    assert play.state_name() != "Empty"
    play.pass_ms(1)
    assert play.state_name() == "Empty"


def test_a_static_member_that_comes_back_with_another_subscription() -> None:
    play = Play(t=4, s=1)
    play.join("m1", ["t"], instance_id="i1")
    play.beat("m1", -2, instance_id="i1")
    answer = play.join("m2", ["s"], instance_id="i1")
    assert (answer.member_epoch, play.given(answer)) == (3, {"s": [0]})


# -- time ----------------------------------------------------------------------------------------


def test_who_is_silent_is_removed() -> None:
    play = Play(t=4)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    for _ in range(9):
        play.pass_ms(5_000)
        play.beat("m2", play.member("m2").epoch)
    assert play.state.group.members.keys() == {"m2"}
    assert play.given(play.beat("m2", 4, own={}, names=["t"], rebalance_timeout_ms=1)) == {
        "t": [0, 1, 2, 3]
    }
    assert code(play.beat("m1", 2)) == "unknown_member_id"


def test_a_group_has_its_own_session_timeout() -> None:
    settings = GroupSettings(consumer_session_timeout_ms=1_000, consumer_heartbeat_interval_ms=200)
    play = Play(settings, t=4)
    assert play.join("m1", ["t"]).heartbeat_interval_ms == 200
    play.pass_ms(999)
    assert code(play.beat("m1", 2)) == "none"
    play.pass_ms(1_000)
    assert play.state_name() == "Empty"


def test_who_does_not_give_up_in_time_is_removed_though_it_lives() -> None:
    play = Play(t=4)
    play.join("m1", ["t"], rebalance_timeout_ms=12_000)
    play.join("m2", ["t"])
    play.beat("m1", 2)
    for _ in range(3):
        play.pass_ms(3_000)
        assert code(play.beat("m1", 2, own={"t": range(4)})) == "none"
        assert play.beat("m2", 3).assignment is None
    play.pass_ms(3_000)
    assert code(play.beat("m1", 2, own={"t": [0, 1]})) == "unknown_member_id"
    assert play.given(play.beat("m2", 3)) == {"t": [0, 1, 2, 3]}


def test_a_new_demand_gives_new_time() -> None:
    play = Play(t=6)
    play.join("m1", ["t"], rebalance_timeout_ms=10_000)
    play.join("m2", ["t"])
    play.beat("m1", 2)
    play.pass_ms(9_000)
    play.join("m3", ["t"])
    assert play.given(play.beat("m1", 2, own={"t": [0, 1, 2]})) == {"t": [0, 1]}
    play.pass_ms(9_000)
    assert code(play.beat("m1", 2, own={"t": [0, 1]})) == "none"
    play.pass_ms(30_000)
    assert "m1" in play.state.group.members


# -- failover ------------------------------------------------------------------------------------


def test_a_failover_throws_nobody_out_and_changes_no_epoch() -> None:
    play = Play(t=6)
    play.join("m1", ["t"], rebalance_timeout_ms=20_000)
    play.join("m2", ["t"], instance_id="i2", rack_id="r", assignor="uniform")
    play.beat("m1", 2)
    assert play.member("m1").state is MemberState.UNREVOKED_PARTITIONS
    writes = play.writes
    play.fail_over(away_ms=10 * SESSION_MS)
    play.pass_ms(19_999)
    answer = play.beat("m1", 2, own={"t": [0, 1, 2]})
    assert (code(answer), answer.member_epoch) == ("none", 3)
    assert play.given(play.beat("m2", 3)) == {"t": [3, 4, 5]}
    assert play.epochs() == (3, 3)
    writes = play.writes
    play.fail_over()
    assert code(play.beat("m1", 3)) == "none"
    assert code(play.beat("m2", 3)) == "none"
    assert play.writes == writes


def test_after_a_failover_time_starts_anew() -> None:
    play = Play(t=6)
    play.join("m1", ["t"], rebalance_timeout_ms=20_000)
    play.join("m2", ["t"])
    play.beat("m1", 2)
    play.fail_over()
    play.pass_ms(20_000)
    assert play.state.group.members.keys() == {"m2"}
    play.fail_over()
    play.pass_ms(SESSION_MS)
    assert play.state_name() == "Empty"


# -- offsets -------------------------------------------------------------------------------------


def test_commits_of_members() -> None:
    play = Play(t=4)
    play.join("m1", ["t"])
    assert play.commit("m1", 2, 0) is ErrorCode.none
    assert play.commit("m1", 1, 0) is ErrorCode.stale_member_epoch
    assert play.commit("m1", 3, 0) is ErrorCode.stale_member_epoch
    assert play.commit("m1", -1, 0) is ErrorCode.stale_member_epoch
    assert play.commit("m9", 2, 0) is ErrorCode.unknown_member_id
    assert play.commit("", -1, 0) is ErrorCode.unknown_member_id
    assert play.commit("m1", 2, 0, api_version=8) is ErrorCode.unsupported_version
    play.beat("m1", -1)
    assert play.commit("", -1, 0) is ErrorCode.none
    assert play.commit("m1", 2, 0) is ErrorCode.unknown_member_id


def test_an_older_epoch_commits_what_the_member_has_had_since() -> None:
    play = Play(t=4)
    play.join("m1", ["t"])
    play.join("m2", ["t"])
    play.beat("m1", 2)
    assert play.commit("m1", 2, 0, 1, 2, 3) is ErrorCode.none
    play.beat("m1", 2, own={"t": [0, 1]})
    play.beat("m2", 3)
    assert play.commit("m1", 2, 0, 1) is ErrorCode.none
    assert play.commit("m1", 2, 0, 2) is ErrorCode.stale_member_epoch
    assert play.commit("m2", 2, 2) is ErrorCode.stale_member_epoch
    assert play.commit("m2", 3, 2) is ErrorCode.none
    play.join("m3", ["t"])
    play.beat("m1", 3)
    assert play.commit("m1", 2, 0, 1) is ErrorCode.none
    assert play.commit("m1", 1, 0, 1) is ErrorCode.stale_member_epoch
    assert play.commit("m1", 2) is ErrorCode.stale_member_epoch


def test_fetches_of_offsets() -> None:
    play = Play(t=4)
    play.join("m1", ["t"])

    def fetch(member_id: str | None, epoch: int) -> str:
        return consumer.admit_fetch(play.state, member_id, epoch).name

    assert fetch(None, -1) == "none"
    assert fetch("m1", 2) == "none"
    assert fetch("m1", 1) == "stale_member_epoch"
    assert fetch("m9", 2) == "unknown_member_id"
    assert fetch("", -1) == "unknown_member_id"


# -- others --------------------------------------------------------------------------------------


def test_the_classic_protocol_is_refused_except_for_leaving() -> None:
    play = Play(t=4)
    play.join("m1", ["t"])
    play.join("m2", ["t"], instance_id="i2")
    join = classic.Join(
        member_id="",
        new_member_id="n",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )
    ((_, joined),) = play.tell(join)
    assert isinstance(joined, classic.Joined)
    assert joined.error is ErrorCode.inconsistent_group_protocol
    ((_, beaten),) = play.tell(classic.Heartbeat(member_id="m1", generation=2))
    assert beaten == classic.Beaten(ErrorCode.unknown_member_id)
    ((_, synced),) = play.tell(classic.Sync(member_id="m1", generation=2))
    assert isinstance(synced, classic.Synced)
    assert synced.error is ErrorCode.unknown_member_id
    epoch, _ = play.epochs()
    leave = classic.Leave(
        leavers=(classic.Leaver("zz"), classic.Leaver("", "i2"), classic.Leaver("m1"))
    )
    ((_, left),) = play.tell(leave)
    assert isinstance(left, classic.Left)
    assert [each.error.name for each in left.results] == ["unknown_member_id", "none", "none"]
    assert play.state_name() == "Empty"
    assert play.epochs()[0] == epoch + 1


def test_the_summary() -> None:
    play = Play(t=4)
    assert consumer.summary(play.state).idle
    play.join("m1", ["t", "later"])
    found = consumer.summary(play.state)
    assert found == ("Stable", "consumer", 1, frozenset({"t", "later"}), False)
    play.tell(TopicsChanged())
    assert play.wake_ms == play.now_ms + SESSION_MS
