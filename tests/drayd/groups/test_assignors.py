"""The assignors: complete, balanced, sticky, and as Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from drayd.groups.assignors import ASSIGNORS, Candidate, Partitions, assign_range, assign_uniform

T, S, R = (UUID(int=n) for n in range(1, 4))


def members(*topics: UUID, **current: Mapping[UUID, set[int]]) -> list[Candidate]:
    return [
        Candidate(name, None, frozenset(topics), {t: frozenset(p) for t, p in held.items() if p})
        for name, held in current.items()
    ]


def plain(assigned: Mapping[str, Partitions]) -> dict[str, dict[UUID, list[int]]]:
    return {name: {t: sorted(p) for t, p in each.items()} for name, each in assigned.items()}


def test_range_gives_runs_in_the_order_of_members() -> None:
    candidates = members(T, m2={T: {0, 1, 2, 3, 4}}, m1={}, m0={})
    assert plain(assign_range(candidates, {T: 5})) == {
        "m0": {T: [0, 1]},
        "m1": {T: [2, 3]},
        "m2": {T: [4]},
    }


def test_range_has_static_members_first() -> None:
    candidates = [
        Candidate("m1", None, frozenset({T}), {}),
        Candidate("m9", "z", frozenset({T}), {}),
        Candidate("m8", "a", frozenset({T}), {}),
    ]
    assert plain(assign_range(candidates, {T: 3})) == {
        "m8": {T: [0]},
        "m9": {T: [1]},
        "m1": {T: [2]},
    }


def test_range_per_topic() -> None:
    both = members(T, S, R, m1={}, m2={})
    some = members(T, R, m0={}, m3={})
    assert plain(assign_range(both + some, {T: 5, S: 5, R: 3})) == {
        "m0": {T: [0, 1], R: [0]},
        "m1": {T: [2], S: [0, 1, 2], R: [1]},
        "m2": {T: [3], S: [3, 4], R: [2]},
        "m3": {T: [4]},
    }


def test_uniform_moves_what_it_must() -> None:
    candidates = members(T, m1={T: {0, 1, 2, 3, 4}}, m2={}, m3={})
    assert plain(assign_uniform(candidates, {T: 5})) == {
        "m1": {T: [0, 1]},
        "m2": {T: [2]},
        "m3": {T: [3, 4]},
    }


def test_uniform_leaves_the_extra_partition_where_it_is() -> None:
    candidates = members(T, m0={T: {1}}, m1={T: {3, 4}}, m3={T: {2}})
    assert plain(assign_uniform(candidates, {T: 5})) == {
        "m0": {T: [1]},
        "m1": {T: [3, 4]},
        "m3": {T: [0, 2]},
    }


def test_uniform_with_different_subscriptions() -> None:
    candidates = [
        Candidate("m1", None, frozenset({T}), {T: frozenset(range(5))}),
        Candidate("m2", None, frozenset({T, S}), {}),
        Candidate("m3", None, frozenset({S, R}), {}),
    ]
    found = assign_uniform(candidates, {T: 5, S: 5, R: 3})
    assert sorted(sum(map(len, each.values())) for each in found.values()) == [4, 4, 5]
    assert found["m3"][R] == {0, 1, 2}


# -- properties ----------------------------------------------------------------------------------

TOPICS = [UUID(int=n) for n in range(1, 6)]
subscriptions = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(8)]),
    st.frozensets(st.sampled_from(TOPICS)),
    min_size=1,
)
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))
assignor = st.sampled_from(sorted(ASSIGNORS))


def run(
    name: str,
    wants: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    old: dict[str, Partitions],
) -> dict[str, Partitions]:
    candidates = [
        Candidate(each, None, frozenset(topics & counts.keys()), old.get(each, {}))
        for each, topics in wants.items()
    ]
    return ASSIGNORS[name](candidates, counts)


def slots(assigned: Mapping[str, Partitions]) -> dict[tuple[UUID, int], str]:
    owners: dict[tuple[UUID, int], str] = {}
    for name, topics in assigned.items():
        for topic, partitions in topics.items():
            assert partitions
            for partition in partitions:
                assert (topic, partition) not in owners, "two owners"
                owners[topic, partition] = name
    return owners


@settings(max_examples=150, deadline=None)
@given(assignor, subscriptions, subscriptions, partition_counts, partition_counts)
def test_every_partition_has_one_owner_who_wants_it(
    name: str,
    before: dict[str, frozenset[UUID]],
    after: dict[str, frozenset[UUID]],
    counts_before: dict[UUID, int],
    counts: dict[UUID, int],
) -> None:
    old = run(name, before, counts_before, {})
    assigned = run(name, after, counts, old)
    assert assigned.keys() == after.keys()
    owners = slots(assigned)
    wanted = frozenset[UUID]().union(*after.values())
    assert owners.keys() == {
        (topic, p) for topic, count in counts.items() if topic in wanted for p in range(count)
    }
    assert all(topic in after[owner] for (topic, _), owner in owners.items())
    assert run(name, after, counts, assigned) == assigned, "a second look moves something"


@settings(max_examples=150, deadline=None)
@given(subscriptions, subscriptions, partition_counts)
def test_uniform_is_balanced(
    before: dict[str, frozenset[UUID]], after: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    assigned = run("uniform", after, counts, run("uniform", before, counts, {}))
    load = {name: sum(map(len, topics.values())) for name, topics in assigned.items()}
    for name, topics in assigned.items():
        for topic in topics:
            for other, wants in after.items():
                assert topic not in wants or load[name] <= load[other] + 1


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 8))
def test_uniform_moves_no_more_than_it_must(count: int, before: int, after: int) -> None:
    old = run("uniform", {f"m{n}": frozenset({T}) for n in range(before)}, {T: count}, {})
    new = run("uniform", {f"m{n}": frozenset({T}) for n in range(after)}, {T: count}, old)
    was, now = slots(old), slots(new)
    moved = sum(was[slot] != now[slot] for slot in was)
    if after >= before:
        assert moved == sum(len(new[f"m{n}"].get(T, ())) for n in range(before, after))
    else:
        gone = sum(len(old[f"m{n}"].get(T, ())) for n in range(after, before))
        assert moved == gone
