"""SIGKILL while a classic group is stable, while its members join, while they wait for the leader:
nobody is thrown out, no generation is given twice, and the rebalance goes on."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

from protocol.errors import ErrorCode
from tests.wire.client import Client
from tests.wire.process import BrokerProcess, broker

GROUP = "g"
SETTINGS = ("group.initial.rebalance.delay.ms=0",)
JOIN, HEARTBEAT, SYNC, DESCRIBE = 11, 12, 14, 15


class Member:
    """A static member on a connection of its own."""

    def __init__(self, client: Client, name: str, member_id: str = "") -> None:
        self.client = client
        self.name = name
        self.member_id = member_id
        self.generation = -1

    def join(self) -> asyncio.Future[Any]:
        timeout = timedelta(seconds=60)
        return self.client.send(
            JOIN,
            9,
            {
                "group_id": GROUP,
                "member_id": self.member_id,
                "group_instance_id": self.name,
                "session_timeout": timeout,
                "rebalance_timeout": timeout,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b"m"}],
            },
        )

    def joined(self, answer: Any) -> Any:
        assert answer.error_code is ErrorCode.none
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, parts: dict[str, bytes] | None = None) -> asyncio.Future[Any]:
        assignments = [{"member_id": m, "assignment": a} for m, a in (parts or {}).items()]
        return self.client.send(
            SYNC,
            5,
            {
                "group_id": GROUP,
                "generation_id": self.generation,
                "member_id": self.member_id,
                "group_instance_id": self.name,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": assignments,
            },
        )

    async def beat(self) -> ErrorCode:
        values = {
            "group_id": GROUP,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.name,
        }
        answer = await self.client.ask(HEARTBEAT, 4, values)
        assert isinstance(answer.error_code, ErrorCode)
        return answer.error_code


async def member(process: BrokerProcess, name: str, former: Member | None = None) -> Member:
    found = Member(await Client.connect(process.address), name)
    if former is not None:
        found.member_id, found.generation = former.member_id, former.generation
    return found


async def phase(process: BrokerProcess) -> str:
    async with await Client.connect(process.address) as client:
        answer = await client.ask(DESCRIBE, 5, {"groups": [GROUP]})
        return str(answer.groups[0].group_state)


async def reach(process: BrokerProcess, wanted: str) -> None:
    while await phase(process) != wanted:
        await asyncio.sleep(0.001)


async def kill(process: BrokerProcess, *members: Member) -> None:
    process.signal(signal.SIGKILL)
    assert await process.ended() == -signal.SIGKILL
    for each in members:
        await each.client.close()


async def pair(process: BrokerProcess) -> tuple[Member, Member]:
    """Two members of generation 2, "a" leading; nobody has synced."""
    a, b = await member(process, "a"), await member(process, "b")
    a.joined(await a.join())
    waits = b.join()
    await reach(process, "PreparingRebalance")
    a.joined(await a.join())
    b.joined(await waits)
    assert a.generation == b.generation == 2
    return a, b


async def test_a_stable_group_goes_on(tmp_path: Path) -> None:
    with broker(tmp_path / "data", *SETTINGS) as process:
        a, b = await pair(process)
        await a.sync({a.member_id: b"A", b.member_id: b"B"})
        await kill(process, a, b)
    with broker(tmp_path / "data", *SETTINGS) as process:
        a, b = await member(process, "a", a), await member(process, "b", b)
        assert await a.beat() is ErrorCode.none
        assert await b.beat() is ErrorCode.none
        assert (await b.sync()).assignment == b"B"
        assert await phase(process) == "Stable"
        await kill(process, a, b)


async def test_a_rebalance_goes_on_where_members_join(tmp_path: Path) -> None:
    with broker(tmp_path / "data", *SETTINGS) as process:
        a, b = await pair(process)
        await a.sync({a.member_id: b"A", b.member_id: b"B"})
        waits = a.join()
        await reach(process, "PreparingRebalance")
        await kill(process, a, b)
        assert waits.exception() is not None
    with broker(tmp_path / "data", *SETTINGS) as process:
        a, b = await member(process, "a", a), await member(process, "b", b)
        assert await b.beat() is ErrorCode.rebalance_in_progress
        waits = b.join()
        answer = a.joined(await a.join())
        assert (a.generation, len(answer.members)) == (3, 2)
        b.joined(await waits)
        assert b.generation == 3
        await kill(process, a, b)


async def test_a_rebalance_goes_on_where_members_wait_for_the_leader(tmp_path: Path) -> None:
    with broker(tmp_path / "data", *SETTINGS) as process:
        a, b = await pair(process)
        waits = b.sync()
        await kill(process, a, b)
        assert waits.exception() is not None
    with broker(tmp_path / "data", *SETTINGS) as process:
        a, b = await member(process, "a", a), await member(process, "b", b)
        answer = a.joined(await a.join())
        assert (a.generation, answer.leader, len(answer.members)) == (2, a.member_id, 2)
        waits = b.sync()
        await a.sync({a.member_id: b"A", b.member_id: b"B"})
        assert (await waits).assignment == b"B"
        await kill(process, a, b)
