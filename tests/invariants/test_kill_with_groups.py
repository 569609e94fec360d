"""SIGKILL of a broker with a group: committed offsets never go back, the member stays."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from protocol.errors import ErrorCode
from tests.wire.client import Client
from tests.wire.process import broker

OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT, SYNC = 8, 9, 11, 12, 14
SETTINGS = ("group.initial.rebalance.delay.ms=0",)
ROUNDS = 3


async def joined(client: Client) -> tuple[str, int]:
    """A member of its own, and its generation."""
    request: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    first = await client.ask(JOIN, 5, request)
    assert first.error_code is ErrorCode.member_id_required, first
    answer = await client.ask(JOIN, 5, request | {"member_id": first.member_id})
    assert answer.error_code is ErrorCode.none, answer
    synced = await client.ask(
        SYNC,
        3,
        {
            "group_id": "g",
            "generation_id": answer.generation_id,
            "member_id": answer.member_id,
            "assignments": [{"member_id": answer.member_id, "assignment": b"all"}],
        },
    )
    assert synced.error_code is ErrorCode.none, synced
    return answer.member_id, answer.generation_id


def commit(member_id: str, generation: int, offset: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": "t", "partitions": [partition]}],
    }


async def fetched(client: Client) -> int:
    answer = await client.ask(
        OFFSET_FETCH, 7, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    )
    assert answer.error_code is ErrorCode.none, answer
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


async def test_committed_offsets_never_go_back_and_nobody_is_thrown_out(tmp_path: Path) -> None:
    member_id, generation, sent, acknowledged = "", 0, -1, -1
    for number in range(ROUNDS + 1):
        with broker(tmp_path / "data", *SETTINGS) as process:
            client = await Client.connect(process.address)
            if number == 0:
                await client.create_topic("t")
                member_id, generation = await joined(client)
            beat = await client.ask(
                HEARTBEAT,
                3,
                {"group_id": "g", "generation_id": generation, "member_id": member_id},
            )
            assert beat.error_code is ErrorCode.none, beat
            assert acknowledged <= await fetched(client) <= sent
            waiting: list[asyncio.Future[Any]] = []
            for _ in range(200):
                sent += 1
                waiting.append(client.send(OFFSET_COMMIT, 7, commit(member_id, generation, sent)))
            # Killed when half of them are answered, and the others on their way.
            for at in range(100):
                answer = await waiting[at]
                assert answer.topics[0].partitions[0].error_code is ErrorCode.none, answer
            process.signal(signal.SIGKILL)
            done = await asyncio.gather(*waiting, return_exceptions=True)
            answered = sum(1 for each in done if not isinstance(each, BaseException))
            acknowledged = sent - len(waiting) + answered
            assert await process.ended() == -signal.SIGKILL
            await client.close()
