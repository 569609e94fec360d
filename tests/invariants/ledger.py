"""What producers have sent and what they were told, held against what the log holds.

I1: offsets are dense and increase. I2: what was acknowledged is there, at its offset, byte for
byte. I3 and I4: what wasn't acknowledged is there whole or not at all; an idempotent batch never
twice, however often it was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from metadata import keys
from metadata.sqlite import SqliteStore
from metadata.values import IndexEntry, decode
from protocol.errors import ErrorCode
from tests.protocol.building import batch, record
from tests.wire.client import ANSWER_WITHIN_S, Address, Client, Produced, body_of, produced
from wal.format import decode as decode_object

NO_PRODUCER = -1


@dataclass
class Sent:
    data: bytes
    offset: int | None = None
    """As acknowledged."""
    found: int | None = None
    """Where it was last seen in the log."""


@dataclass
class Ledger:
    """One producer on one partition, which nobody else writes to."""

    topic: str
    partition: int
    producer_id: int = NO_PRODUCER
    sent: list[Sent] = field(default_factory=list)
    next_sequence: int = 0

    def next(self, records: int = 2, size: int = 100) -> Sent:
        """A batch that is unlike any other of this producer."""
        number = len(self.sent)
        idempotent = self.producer_id != NO_PRODUCER
        text = b"%d/%d " % (self.partition, number)
        each = Sent(
            batch(
                [record(index, value=text + bytes(size)) for index in range(records)],
                producer_id=self.producer_id,
                producer_epoch=0 if idempotent else -1,
                base_sequence=self.next_sequence if idempotent else -1,
            )
        )
        self.next_sequence += records
        self.sent.append(each)
        return each

    @property
    def acknowledged(self) -> list[Sent]:
        return [each for each in self.sent if each.offset is not None]

    @property
    def unknown(self) -> list[Sent]:
        return [each for each in self.sent if each.offset is None]

    def told(self, sent: Sent, answer: Produced) -> None:
        assert answer.code is ErrorCode.none, answer
        assert answer.base_offset >= 0
        assert sent.offset in (None, answer.base_offset), "two offsets for one batch"
        sent.offset = answer.base_offset

    async def check(self, client: Client) -> None:
        log = await client.read_log(self.topic, self.partition)
        by_body = {body_of(each.data): each for each in self.sent}
        assert len(by_body) == len(self.sent)
        for each in self.sent:
            each.found = None
        order = []
        for stored in log:
            each = by_body[stored.body]
            assert each.found is None, f"twice in the log: {each.found}, {stored.base_offset}"
            each.found = stored.base_offset
            order.append(self.sent.index(each))
        assert order == sorted(order), "not in the order of sending"
        for each in self.acknowledged:
            assert each.found == each.offset, "an acknowledged batch is not at its offset"

    async def send_again(self, client: Client) -> None:
        """As an idempotent producer does after it lost its connection: in order, one by one."""
        assert self.producer_id != NO_PRODUCER
        for each in self.unknown:
            found = each.found
            self.told(each, await client.produce(self.topic, self.partition, each.data))
            assert found in (None, each.offset), "answered with another than its first offset"


async def load(address: Address, ledger: Ledger, *, window: int, batches: int | None = None) -> int:
    """Produces with `window` requests in flight, until the connection ends or all were sent.
    Returns how many were acknowledged."""
    count = 0
    flying: deque[tuple[Sent, asyncio.Future[object]]] = deque()
    async with await Client.connect(address) as client:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                while batches is None or len(ledger.sent) < batches or flying:
                    while len(flying) < window and (batches is None or len(ledger.sent) < batches):
                        each = ledger.next()
                        answer = client.send_produce(ledger.topic, ledger.partition, each.data)
                        flying.append((each, answer))
                    each, answer = flying[0]
                    ledger.told(each, produced(await answer))
                    flying.popleft()
                    count += 1
        except ConnectionError:
            # What was answered before the end counts.
            for each, answer in flying:
                if answer.done() and answer.exception() is None:
                    ledger.told(each, produced(answer.result()))
                    count += 1
    return count


async def check_objects(data_dir: Path, domain: int = 0) -> int:
    """Every object that the index names is there and whole. Returns how many entries it has."""
    store = await SqliteStore.open(data_dir / "metadata.db", read_only=True)
    count = 0
    try:
        for stream_id in range(100):
            prefix = keys.index(domain, stream_id)
            end = 0
            async for row in store.scan(
                prefix, keys.end_of(prefix), scope=keys.domain_scope(domain)
            ):
                entry = decode(IndexEntry, row.value)
                assert entry.start_offset == end, "a hole in the index"
                end = entry.end_offset
                data = await asyncio.to_thread((data_dir / "objects" / entry.path).read_bytes)
                assert decode_object(data).header.wal_id == entry.wal_id
                count += 1
    finally:
        await store.close()
    return count
