"""Keys: their order, their scopes, and that no two mean the same."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata import keys

U64 = st.integers(0, 2**64 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
DOMAINS = st.integers(0, 99_999)


@given(OFFSETS, OFFSETS)
def test_the_order_of_entries_is_the_order_of_offsets(one: int, other: int) -> None:
    first, second = keys.index_entry(3, 5, one), keys.index_entry(3, 5, other)
    assert (first < second) == (one < other)
    assert keys.index(3, 5) < first < keys.end_of(keys.index(3, 5))


@given(U64, U64)
def test_the_order_of_streams_is_the_order_of_their_ids(one: int, other: int) -> None:
    assert (keys.stream_head(0, one) < keys.stream_head(0, other)) == (one < other)
    assert not keys.stream_head(0, one).startswith(keys.stream(0, other)) or one == other


@given(DOMAINS, U64, OFFSETS, st.uuids())
def test_every_key_of_a_domain_is_in_its_scope(
    domain: int, stream_id: int, number: int, wal_id: UUID
) -> None:
    built = [
        keys.stream_head(domain, stream_id),
        keys.index_entry(domain, stream_id, number),
        keys.producer(domain, stream_id, number),
        keys.marker(domain, wal_id.hex),
        keys.wal_object(domain, wal_id),
        keys.garbage_object(domain, wal_id),
    ]
    assert len(set(built)) == len(built)
    assert {keys.scope_of(key) for key in built} == {keys.domain_scope(domain)}
    assert all(key.startswith(keys.domain(domain)) for key in built)


@pytest.mark.parametrize(
    ("key", "scope"),
    [
        (keys.CLUSTER_ID, keys.CLUSTER_SCOPE),
        (keys.counter("stream-id"), keys.CLUSTER_SCOPE),
        (keys.broker(7), keys.CLUSTER_SCOPE),
        (keys.topic_name("a.b-c_d"), keys.TOPICS_SCOPE),
        (keys.topic_id(UUID(int=1)), keys.TOPICS_SCOPE),
        (keys.quota({"user": None, "client-id": "a/b"}), keys.QUOTAS_SCOPE),
    ],
)
def test_keys_outside_of_domains_have_a_home(key: str, scope: str) -> None:
    assert keys.scope_of(key) == scope


@pytest.mark.parametrize("key", ["", "/", "/dray/v1", "/dray/v1/other/x", "/dray/v1/domains/x/y"])
def test_a_key_that_nothing_builds_has_no_scope(key: str) -> None:
    with pytest.raises(ValueError):
        keys.scope_of(key)


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True))
def test_every_topic_name_lies_in_the_range_of_names(name: str) -> None:
    key = keys.topic_name(name)
    assert keys.TOPIC_NAMES <= key < keys.end_of(keys.TOPIC_NAMES)
    assert key.count("/") == keys.end_of(keys.TOPIC_NAMES).count("/")


def test_the_range_of_a_prefix_ends_with_it() -> None:
    assert keys.end_of("/a/") > "/a/zzz"
    assert keys.end_of("/a/") < "/b/"
    with pytest.raises(ValueError):
        keys.end_of("/a")


@given(st.uuids(), U64)
def test_what_a_key_names_can_be_read_from_it(wal_id: UUID, producer_id: int) -> None:
    assert keys.wal_id_of(keys.wal_object(1, wal_id)) == wal_id
    assert keys.wal_id_of(keys.garbage_object(1, wal_id)) == wal_id
    assert keys.producer_id_of(keys.producer(1, 2, producer_id)) == producer_id


@given(st.text(), st.text(), st.uuids(), st.integers(0, 2**31 - 1))
def test_any_text_is_a_group_id(one: str, other: str, topic: UUID, partition: int) -> None:
    built = [
        keys.group_record(one),
        keys.group_lease(one),
        keys.group_offset(one, topic, partition),
    ]
    assert {keys.scope_of(key) for key in built} == {keys.group_scope(one)}
    assert (keys.group_scope(one) == keys.group_scope(other)) == (one == other)
    name = keys.group_name(one)
    assert keys.scope_of(name) == keys.GROUP_NAMES_SCOPE
    assert keys.GROUP_NAMES < name < keys.end_of(keys.GROUP_NAMES)
    assert name.count("/") == keys.GROUP_NAMES.count("/")
    assert keys.group_id_of(name) == one


@given(st.text(), st.uuids(), st.integers(0, 2**31 - 1))
def test_a_committed_offset_lies_in_its_groups_range(
    group_id: str, topic: UUID, partition: int
) -> None:
    key, prefix = keys.group_offset(group_id, topic, partition), keys.group_offsets(group_id)
    assert prefix < key < keys.end_of(prefix)
    assert key.count("/") == prefix.count("/")
    assert keys.partition_of(key) == (topic, partition)


NAMES = st.none() | st.text()


@given(
    st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), NAMES, min_size=1),
    st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), NAMES, min_size=1),
)
def test_every_quota_entity_has_a_key_of_its_own(
    one: dict[str, str | None], other: dict[str, str | None]
) -> None:
    key = keys.quota(one)
    assert (key == keys.quota(other)) == (one == other)
    assert keys.QUOTAS < key < keys.end_of(keys.QUOTAS)
    assert key.count("/") == keys.QUOTAS.count("/")
    assert keys.scope_of(key) == keys.QUOTAS_SCOPE
