"""Consumer groups of the new protocol (KIP-848) over real sockets, on a real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from tests.wire.client import Client
from tests.wire.running import local_broker

HEARTBEAT, DESCRIBE = 68, 69


async def beat(client: Client, member_id: str, epoch: int, **fields: Any) -> Any:
    return await client.ask(
        HEARTBEAT,
        1,
        {
            "group_id": "g",
            "member_id": member_id,
            "member_epoch": epoch,
            "rebalance_timeout": -1,
            "topic_partitions": None,
            "subscribed_topic_names": None,
            **fields,
        },
    )


async def join(client: Client, member_id: str, *names: str) -> Any:
    return await beat(
        client,
        member_id,
        0,
        rebalance_timeout=60_000,
        topic_partitions=[],
        subscribed_topic_names=list(names),
    )


def owns(topic_id: UUID, *partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": list(partitions)}]


def given(answer: Any) -> list[int] | None:
    assert answer.error_code.name == "none", answer
    if answer.assignment is None:
        return None
    return [each for topic in answer.assignment.topic_partitions for each in topic.partitions]


async def described(client: Client) -> Any:
    (group,) = (
        await client.ask(DESCRIBE, 1, {"group_ids": ["g"], "include_authorized_operations": False})
    ).groups
    return group


async def test_a_rebalance_goes_on_where_a_broker_stopped(tmp_path: Path) -> None:
    settings = {"group_consumer_assignment_interval_ms": 0}
    async with (
        local_broker(tmp_path, **settings) as broker,
        await broker.connect() as client,
    ):
        topic_id = await client.create_topic("t", 4)
        first = await join(client, "m1", "t")
        assert (first.member_epoch, given(first)) == (2, [0, 1, 2, 3])
        assert (await join(client, "m2", "t")).member_epoch == 3
        assert given(await beat(client, "m1", 2)) == [0, 1]
    async with (
        local_broker(tmp_path, **settings) as broker,
        await broker.connect() as client,
    ):
        group = await described(client)
        assert (group.group_state, group.group_epoch) == ("Reconciling", 3)
        assert [each.client_host for each in group.members] == ["/127.0.0.1", "/127.0.0.1"]
        # The new broker knows that 2 and 3 aren't free yet.
        assert given(await beat(client, "m2", 3)) is None
        done = await beat(client, "m1", 2, topic_partitions=owns(topic_id, 0, 1))
        assert (done.member_epoch, given(done)) == (3, None)
        assert given(await beat(client, "m2", 3)) == [2, 3]
        assert (await described(client)).group_state == "Stable"


async def test_heartbeats_store_nothing(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t", 4)
        await join(client, "m1", "t")
        broker.metadata.down = True
        for _ in range(3):
            assert given(await beat(client, "m1", 2)) is None
        refused = await beat(client, "m1", 2, subscribed_topic_names=["other"])
        assert refused.error_code.name == "coordinator_not_available"
        broker.metadata.down = False
        assert given(await beat(client, "m1", 2)) is None
        assert (await described(client)).group_epoch == 2


async def test_a_topic_that_comes_and_goes(tmp_path: Path) -> None:
    settings = {"group_consumer_assignment_interval_ms": 0, "auto_create_topics_enable": False}
    async with (
        local_broker(tmp_path, **settings) as broker,
        await broker.connect() as client,
    ):
        assert given(await join(client, "m1", "t")) == []
        await client.create_topic("t", 2)
        assert given(await beat(client, "m1", 2)) == [0, 1]
        await client.delete_topic("t")
        assert given(await beat(client, "m1", 3)) == []
        assert (await beat(client, "m1", 3, topic_partitions=[])).member_epoch == 4
