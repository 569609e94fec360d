"""Load on group coordinators: times of real consumers, and raw heartbeats and commits in numbers.

Joining is timed with librdkafka, whose consumer asks for both protocols. Two thousand of them
would measure themselves, so heartbeats and commits come from plain connections, one a member.
"""

import asyncio
import itertools
import statistics
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition

from compat.load import LoadFailed
from compat.oracle import codec, schema
from compat.wire import Address

ASSIGNED_WITHIN_S = 60.0
POLL_S = 0.005
SESSION_TIMEOUT_MS = 45_000
JOINED_AT_ONCE = 50
# Old enough to have fixed widths, new enough for Kafka 4.
JOIN, SYNC, HEARTBEAT, COMMIT = (11, 2), (14, 1), (12, 1), (8, 2)


class Joined(NamedTuple):
    """Medians over the rounds."""

    first_s: float
    second_s: float


class Commits(NamedTuple):
    per_s: float
    p50_ms: float


def join_times(address: Address, topic: str, partitions: int, protocol: str, rounds: int) -> Joined:
    """How long a first member takes to be assigned everything, and a second one its half."""
    firsts, seconds = [], []
    for number in range(rounds):
        group = f"join-{protocol}-{number}-{time.time_ns()}"
        one = _Member(address, group, topic, protocol)
        two = _Member(address, group, topic, protocol)
        try:
            firsts.append(_until([one], [partitions]))
            seconds.append(_until([one, two], [partitions // 2] * 2))
        finally:
            two.close()
            one.close()
    return Joined(statistics.median(firsts), statistics.median(seconds))


class _Member:
    """A consumer that is made when it is first polled, so that making it counts."""

    def __init__(self, address: Address, group: str, topic: str, protocol: str) -> None:
        self._settings = {
            "bootstrap.servers": str(address),
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._topic = topic
        self._consumer: Consumer | None = None

    def poll(self) -> int:
        """How many partitions it has now."""
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
            self._consumer.subscribe([self._topic])
        self._consumer.poll(POLL_S)
        found: Sequence[TopicPartition] = self._consumer.assignment()
        return len(found)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _until(members: Sequence[_Member], wanted: Sequence[int]) -> float:
    began = time.perf_counter()
    while [member.poll() for member in members] != list(wanted):
        if time.perf_counter() - began > ASSIGNED_WITHIN_S:
            raise LoadFailed(f"no assignment of {wanted} partitions in {ASSIGNED_WITHIN_S} s")
    return time.perf_counter() - began


class _Raw:
    """One plain connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)

    @classmethod
    async def connect(cls, address: Address) -> Self:
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, api: tuple[int, int], values: Mapping[str, Any]) -> dict[str, Any]:
        return self.decode(api, await self.ask_bytes(api, encoded(api, values)))

    async def ask_bytes(self, api: tuple[int, int], body: bytes) -> bytes:
        head = struct.pack(">hhih", *api, next(self._ids), 5) + b"bench"
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    @staticmethod
    def decode(api: tuple[int, int], frame: bytes) -> dict[str, Any]:
        answer = codec.decode(schema.response(*api).body, frame, 4)
        if answer.get("error_code", "none") not in ("none", 0):
            raise LoadFailed(f"API {api[0]}: {answer['error_code']}")
        return answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()


def encoded(api: tuple[int, int], values: Mapping[str, Any]) -> bytes:
    return codec.encode(schema.request(*api).body, values)


class Heartbeats:
    """Groups of two members that do nothing but beat."""

    def __init__(self, address: Address, groups: int, interval_s: float) -> None:
        self._address = address
        self._groups = groups
        self._interval_s = interval_s
        self._members: list[tuple[_Raw, bytes]] = []

    async def join(self, stack: AsyncExitStack) -> None:
        """Needs a server that waits a little for a group's second member."""
        for at in range(0, self._groups, JOINED_AT_ONCE):
            numbers = range(at, min(at + JOINED_AT_ONCE, self._groups))
            for pair in await asyncio.gather(*(self._join(stack, number) for number in numbers)):
                self._members += pair

    async def _join(self, stack: AsyncExitStack, number: int) -> list[tuple[_Raw, bytes]]:
        group = f"beating-{number}"
        connections = [
            await stack.enter_async_context(await _Raw.connect(self._address)) for _ in range(2)
        ]
        asked = {
            "group_id": group,
            "session_timeout": SESSION_TIMEOUT_MS,
            "rebalance_timeout": SESSION_TIMEOUT_MS,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": ""}],
        }
        joined = await asyncio.gather(*(each.ask(JOIN, asked) for each in connections))
        beats = []
        syncs = []
        for connection, answer in zip(connections, joined, strict=True):
            about = {
                "group_id": group,
                "generation_id": answer["generation_id"],
                "member_id": answer["member_id"],
            }
            members = [{"member_id": each["member_id"], "assignment": ""} for each in joined]
            leads = answer["leader"] == answer["member_id"]
            syncs.append(connection.ask(SYNC, about | {"assignments": members if leads else []}))
            beats.append((connection, encoded(HEARTBEAT, about)))
        await asyncio.gather(*syncs)
        return beats

    async def beat(self, seconds: float) -> int:
        """Every member every interval, spread evenly; how many beats there were."""
        step_s = self._interval_s / len(self._members)
        deadline = time.perf_counter() + seconds
        counts = await asyncio.gather(
            *(
                self._beat(connection, body, number * step_s, deadline)
                for number, (connection, body) in enumerate(self._members)
            )
        )
        return sum(counts)

    async def _beat(self, raw: _Raw, body: bytes, delay_s: float, deadline: float) -> int:
        await asyncio.sleep(delay_s)
        count = 0
        while time.perf_counter() < deadline:
            raw.decode(HEARTBEAT, await raw.ask_bytes(HEARTBEAT, body))
            count += 1
            await asyncio.sleep(self._interval_s)
        return count


async def commits(address: Address, topic: str, in_flight: int, seconds: float) -> Commits:
    """Commits of one offset each, from as many groups as are in flight."""
    times: list[float] = []

    async def commit(number: int) -> None:
        async with await _Raw.connect(address) as raw:
            offset = 0
            while time.perf_counter() < deadline:
                offset += 1
                body = _commit(f"committing-{number}", topic, offset)
                began = time.perf_counter()
                frame = await raw.ask_bytes(COMMIT, body)
                times.append(time.perf_counter() - began)
                answer = raw.decode(COMMIT, frame)
                code = answer["topics"][0]["partitions"][0]["error_code"]
                if code not in ("none", 0):
                    raise LoadFailed(f"a commit was refused: {code}")

    deadline = time.perf_counter() + seconds
    began = time.perf_counter()
    await asyncio.gather(*(commit(number) for number in range(in_flight)))
    return Commits(len(times) / (time.perf_counter() - began), statistics.median(times) * 1e3)


def _commit(group: str, topic: str, offset: int) -> bytes:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_metadata": "",
    }
    return encoded(
        COMMIT,
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "retention_time": -1,
            "topics": [{"name": topic, "partitions": [partition]}],
        },
    )
