"""Offsets by time, against a plain list of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drayd.broker import Broker
from drayd.cache import Cache
from drayd.config import Settings
from drayd.fetch import Fetcher
from drayd.metrics import Metrics
from drayd.offsets import OffsetAt, by_timestamp, of_max_timestamp
from metadata.memory import MemoryStore
from metadata.streams import DomainLog
from metadata.trim import trim
from metadata.values import StreamHead, StreamRef
from tests.drayd.written import REF, STREAM, WrittenLog
from tests.protocol.building import BASE_MS, batch, record
from wal.faulty import Faulty
from wal.objectstore import open_store
from wal.reader import Reader

Times = list[int]


@dataclass
class Services:
    """The part of a broker that looks up offsets."""

    settings: Settings
    fetcher: Fetcher
    log: WrittenLog
    objects: Faulty

    def domain(self, ref: StreamRef) -> DomainLog:
        return self.log.domain

    async def by_timestamp(self, time: int) -> OffsetAt | None:
        return await by_timestamp(cast(Broker, self), REF, await self.head(), BASE_MS + time)

    async def of_max_timestamp(self) -> OffsetAt | None:
        return await of_max_timestamp(cast(Broker, self), REF, await self.head())

    async def head(self) -> StreamHead:
        return (await self.log.domain.refresh(STREAM)).head

    async def trim(self, offset: int) -> None:
        await trim(self.log.domain, STREAM, offset)


async def services() -> Services:
    objects = Faulty(open_store("memory://"))
    log = await WrittenLog.create(MemoryStore(), objects)
    cache = Cache(hot_max_bytes=0, cold_max_bytes=10**7)
    fetcher = Fetcher([log.domain], cache, Reader(objects), Metrics(), read_ahead_bytes=500)
    return Services(Settings(), fetcher, log, objects)


def timed(times: Times, codec: int = 0) -> bytes:
    return batch(
        [record(n, timestamp_delta=time) for n, time in enumerate(times)],
        max_timestamp=BASE_MS + max(times),
        codec=codec,
    )


def first_at_or_after(times: Times, time: int, start: int = 0) -> OffsetAt | None:
    return next(
        (OffsetAt(n, BASE_MS + t) for n, t in enumerate(times) if n >= start and t >= time), None
    )


batches = st.lists(st.integers(0, 50), min_size=1, max_size=4)


@settings(max_examples=60)
@given(st.lists(st.lists(batches, min_size=1, max_size=3), min_size=1, max_size=8), st.data())
async def test_the_first_record_that_is_late_enough_is_found(
    objects: list[list[Times]], data: st.DataObject
) -> None:
    here = await services()
    for batches in objects:
        await here.log.write([timed(times) for times in batches])
    times = [time for batches in objects for each in batches for time in each]
    for time in data.draw(st.lists(st.integers(0, 51), min_size=1, max_size=6)):
        assert await here.by_timestamp(time) == first_at_or_after(times, time)
    assert await here.of_max_timestamp() == first_at_or_after(times, max(times))
    # And again when a prefix is gone, wherever it ends.
    start = data.draw(st.integers(0, len(times)))
    await here.trim(start)
    left = times[start:]
    for time in (0, *data.draw(st.lists(st.integers(0, 51), max_size=4))):
        assert await here.by_timestamp(time) == moved(first_at_or_after(left, time), start)
    newest = first_at_or_after(left, max(left)) if left else None
    assert await here.of_max_timestamp() == moved(newest, start)
    await here.fetcher.close()


def moved(found: OffsetAt | None, by: int) -> OffsetAt | None:
    return None if found is None else OffsetAt(found.offset + by, found.timestamp_ms)


async def test_an_empty_log_has_no_times() -> None:
    here = await services()
    assert await here.by_timestamp(0) is None
    assert await here.of_max_timestamp() is None


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_compressed_batches_are_looked_into(codec: int) -> None:
    here = await services()
    await here.log.write([timed([5, 1, 9, 2], codec)])
    assert await here.by_timestamp(6) == OffsetAt(2, BASE_MS + 9)
    assert await here.of_max_timestamp() == OffsetAt(2, BASE_MS + 9)


async def test_few_objects_are_read_however_long_the_log_is() -> None:
    here = await services()
    for number in range(300):
        await here.log.write([timed([number])])
    before = here.objects.calls["get"]
    assert await here.by_timestamp(250) == OffsetAt(250, BASE_MS + 250)
    assert here.objects.calls["get"] - before < 30


async def test_what_was_trimmed_is_not_found() -> None:
    here = await services()
    for times in ([1, 50], [2, 3], [30, 4], [5, 6]):
        await here.log.write([timed(times)])
    await here.trim(4)
    assert await here.by_timestamp(2) == OffsetAt(4, BASE_MS + 30)
    assert await here.by_timestamp(31) is None
    assert await here.of_max_timestamp() == OffsetAt(4, BASE_MS + 30)


async def test_a_log_that_was_trimmed_to_its_end_has_no_times() -> None:
    here = await services()
    await here.log.write([timed([1, 2])])
    await here.trim(2)
    assert await here.by_timestamp(0) is None
    assert await here.of_max_timestamp() is None
