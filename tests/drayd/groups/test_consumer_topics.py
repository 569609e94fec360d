"""Topics that come, grow and go, and regular expressions."""

from __future__ import annotations

import pytest

from drayd.groups import regex
from drayd.groups.machine import GroupSettings
from tests.drayd.groups.consumer_play import Play, code


def test_a_topic_that_is_created_later() -> None:
    play = Play()
    answer = play.join("m1", ["t"])
    assert (answer.member_epoch, play.given(answer)) == (2, {})
    play.ids["t"] = play.topics.put("t", 3)
    assert play.epochs() == (2, 2)
    later = play.beat("m1", 2)
    assert (later.member_epoch, play.given(later)) == (3, {"t": [0, 1, 2]})


def test_a_topic_that_grows() -> None:
    play = Play(t=2)
    play.join("m1", ["t"])
    play.topics.put("t", 3)
    grown = play.beat("m1", 2)
    assert (grown.member_epoch, play.given(grown)) == (3, {"t": [0, 1, 2]})


def test_a_topic_that_is_deleted() -> None:
    play = Play(t=2)
    play.join("m1", ["t"])
    play.topics.drop("t")
    gone = play.beat("m1", 2)
    assert (gone.member_epoch, play.given(gone)) == (2, {})
    assert play.beat("m1", 2, own={}).member_epoch == 3


def test_a_topic_that_is_made_again_is_another_one() -> None:
    play = Play(t=2)
    play.join("m1", ["t"])
    play.topics.drop("t")
    play.ids["t"] = play.topics.put("t", 2)
    assert play.given(play.beat("m1", 2)) == {}
    again = play.beat("m1", 2, own={})
    assert (again.member_epoch, play.given(again)) == (3, {"t": [0, 1]})


def test_topics_that_nobody_subscribes_to_change_nothing() -> None:
    play = Play(t=2)
    play.join("m1", ["t"])
    writes = play.writes
    play.topics.put("other", 9)
    assert play.beat("m1", 2).assignment is None
    assert (play.epochs(), play.writes) == ((2, 2), writes)


def test_what_a_member_unsubscribes_from_is_taken_at_once() -> None:
    play = Play(GroupSettings(consumer_assignment_interval_ms=1_000), t=2, s=2)
    play.join("m1", ["t", "s"])
    off = play.beat("m1", 2, names=["s"])
    assert (off.member_epoch, play.given(off)) == (2, {"s": [0, 1]})
    assert play.epochs() == (3, 2)
    assert play.beat("m1", 2, own={"s": [0, 1]}).member_epoch == 2
    play.pass_ms(1_000)
    assert play.beat("m1", 2).member_epoch == 3


# -- regular expressions -------------------------------------------------------------------------


def test_an_expression_is_matched_after_the_join() -> None:
    play = Play(ta=2, tb=1, other=5)
    first = play.join("m1", regex="t.*")
    assert (first.member_epoch, play.given(first)) == (1, {})
    assert play.epochs() == (2, 1)
    second = play.beat("m1", 1)
    assert (second.member_epoch, play.given(second)) == (2, {"ta": [0, 1], "tb": [0]})


def test_a_known_expression_takes_effect_in_the_join() -> None:
    play = Play(ta=2)
    play.join("m1", regex="t.*")
    play.beat("m1", 1)
    assert play.join("m2", regex="t.*").member_epoch == 3
    assert play.target("m2") == {"ta": [1]}


def test_an_expression_that_matches_nothing_yet() -> None:
    play = Play()
    play.join("m1", regex="t.*")
    assert play.epochs() == (1, 1)
    play.ids["tx"] = play.topics.put("tx", 1)
    # Topics are looked through again only every ten seconds.
    play.pass_ms(5_000)
    assert play.beat("m1", 1).assignment is None
    play.pass_ms(5_000)
    assert play.beat("m1", 1).assignment is None
    assert play.given(play.beat("m1", 1)) == {"tx": [0]}


def test_names_and_an_expression_together() -> None:
    play = Play(t=1, x1=1, x2=1)
    play.join("m1", ["t"], regex="x.")
    assert play.given(play.beat("m1", 2)) == {"t": [0], "x1": [0], "x2": [0]}
    assert play.given(play.beat("m1", 3, regex="")) == {"t": [0]}


def test_another_expression() -> None:
    play = Play(a=1, b=1)
    play.join("m1", regex="a")
    play.beat("m1", 1)
    changed = play.beat("m1", 2, regex="b")
    assert (changed.member_epoch, play.given(changed)) == (2, {})
    play.beat("m1", 2)
    after = play.beat("m1", 2, own={})
    assert (after.member_epoch, play.given(after)) == (3, {"b": [0]})


def test_a_failover_keeps_what_was_matched() -> None:
    play = Play(a=1, b=1)
    play.join("m1", regex="a")
    play.beat("m1", 1)
    writes = play.writes
    play.fail_over()
    assert play.beat("m1", 2).assignment is None
    assert (play.epochs(), play.writes) == ((2, 2), writes)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("[a", "missing closing ]"),
        ("(a", "missing closing )"),
        ("a(?=b)", "invalid or unsupported Perl syntax"),
        ("*a", "missing argument to repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a\\", "trailing backslash at end of expression"),
        ("\\1", "invalid escape sequence"),
        ("a**", "invalid nested repetition operator"),
        ("[z-a]", "invalid character class range"),
        ("(?P<n", "invalid named capture"),
    ],
)
def test_expressions_that_are_none(expression: str, why: str) -> None:
    play = Play()
    answer = play.join("m1", regex=expression)
    assert code(answer) == "invalid_regular_expression"
    assert answer.message == (
        f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {why}."
    )
    assert not play.state.exists


def test_the_whole_name_must_match_and_hard_expressions_take_no_time() -> None:
    assert regex.matching("t", ["t", "tt", "xt"]) == {"t"}
    assert regex.matching("(a*)*b", ["a" * 200, "aab"]) == {"aab"}
