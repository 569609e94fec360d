"""Metadata and topics: who may create what, and what everybody is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from tests.wire.client import CREATE_TOPICS, METADATA, Client
from tests.wire.process import BrokerProcess
from tests.wire.running import local_broker


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    ("version", "flag"), [(1, None), (3, None), (4, True), (4, False), (12, True), (12, False)]
)
async def test_auto_creation_needs_the_setting_and_the_request(
    tmp_path: Path, enabled: bool, version: int, flag: bool | None
) -> None:
    async with (
        local_broker(
            tmp_path / "data", auto_create_topics_enable=enabled, num_partitions=3
        ) as broker,
        await broker.connect() as client,
    ):
        for _ in range(2):
            asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": flag or False}
            (found,) = (await client.ask(METADATA, version, asked)).topics
            if enabled and flag is not False:
                assert found.error_code is ErrorCode.none
                assert len(found.partitions) == 3
            else:
                assert found.error_code is ErrorCode.unknown_topic_or_partition
        bad = {"topics": [{"name": "no/slash"}], "allow_auto_topic_creation": True}
        (found,) = (await client.ask(METADATA, version, bad)).topics
        assert found.error_code is ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("version", range(14))
async def test_every_version_names_the_broker_and_the_topic(
    client: Client, server: BrokerProcess, topic: str, version: int
) -> None:
    topic_id = await client.create_topic(topic, 2)
    answer = await client.ask(METADATA, version, {"topics": [{"name": topic}]})
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
        (0, *server.address)
    ]
    (found,) = answer.topics
    assert (found.error_code, found.name) == (ErrorCode.none, topic)
    assert [each.partition_index for each in found.partitions] == [0, 1]
    assert {each.leader_id for each in found.partitions} == {0}
    if version >= 10:
        assert found.topic_id == topic_id
    if version >= 12:
        by_id = {"topics": [{"name": None, "topic_id": topic_id}]}
        (found,) = (await client.ask(METADATA, version, by_id)).topics
        assert (found.error_code, found.name) == (ErrorCode.none, topic)


async def test_all_topics_or_none(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    every = await client.ask(METADATA, 9, {"topics": None})
    assert topic in [each.name for each in every.topics]
    assert (await client.ask(METADATA, 9, {"topics": []})).topics == ()


async def test_one_bad_topic_of_a_request_fails_alone(client: Client, topic: str) -> None:
    asked = [
        {"name": name, "num_partitions": partitions, "replication_factor": factor}
        for name, partitions, factor in (
            (topic, 1, 1),
            (f"{topic}-zero", 0, 1),
            (f"{topic}-factor", 1, 0),
            ("bad name", 1, 1),
            ("..", 1, 1),
            (f"{topic}-twice", 1, 1),
            (f"{topic}-twice", 1, 1),
            (f"{topic}-default", -1, -1),
        )
    ]
    answer = await client.ask(CREATE_TOPICS, 7, {"topics": asked, "timeout": 30_000})
    codes = {each.name: each.error_code for each in answer.topics}
    assert codes == {
        topic: ErrorCode.none,
        f"{topic}-zero": ErrorCode.invalid_partitions,
        f"{topic}-factor": ErrorCode.invalid_replication_factor,
        "bad name": ErrorCode.invalid_topic_exception,
        "..": ErrorCode.invalid_topic_exception,
        f"{topic}-twice": ErrorCode.invalid_request,
        f"{topic}-default": ErrorCode.none,
    }
    again = await client.ask(CREATE_TOPICS, 7, {"topics": asked[:1], "timeout": 30_000})
    assert again.topics[0].error_code is ErrorCode.topic_already_exists


async def test_validate_only_creates_nothing(client: Client, topic: str) -> None:
    asked = [{"name": topic, "num_partitions": 1, "replication_factor": 1}]
    request = {"topics": asked, "timeout": 30_000, "validate_only": True}
    for _ in range(2):
        (answer,) = (await client.ask(CREATE_TOPICS, 7, request)).topics
        assert answer.error_code is ErrorCode.none
