"""Names of WAL objects: no name without its marker, and no marker longer than its names need."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from drayd.names import MAX_AGE_MS, MarkedNames
from metadata import keys
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryStore
from metadata.streams import wal_id
from metadata.values import Marker, decode
from tests.metadata.stored import Clock, domain_log, keys_under
from wal.objectstore import Unavailable
from wal.paths import parse_wal_path
from wal.writer import Name

RANGE = 4


class Setup:
    def __init__(self, zone: str = "z1", range_size: int = RANGE) -> None:
        self.clock = Clock(1_700_000_000_000)
        self.inner = MemoryStore()
        self.store = FaultyStore(self.inner)
        self.names = MarkedNames(
            domain_log(self.store, self.clock),
            broker_id=3,
            incarnation="inc",
            zone=zone,
            range_size=range_size,
            now_ms=self.clock,
        )

    async def markers(self) -> set[str]:
        return set(await keys_under(self.inner, keys.staging(0)))

    async def marker(self, key: str) -> Marker:
        found = await self.inner.get(key, scope=keys.domain_scope(0))
        assert found is not None
        return decode(Marker, found.value)

    async def settle_tasks(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_name_is_covered_by_a_marker_that_stands() -> None:
    here = Setup()
    seen: set[UUID] = set()
    for _ in range(3 * RANGE):
        name = await here.names.take()
        assert name.marker in await here.markers()
        marker = await here.marker(name.marker)
        assert (marker.broker_id, marker.incarnation, marker.zone) == (3, "inc", "z1")
        assert name.wal_id in {wal_id(marker.base, number) for number in range(marker.count)}
        assert name.wal_id not in seen
        seen.add(name.wal_id)
        path = parse_wal_path(name.path)
        assert path is not None
        assert (path.zone, path.meta_domain, path.wal_id) == ("z1", 0, name.wal_id)


async def test_names_taken_side_by_side_are_all_different_and_covered() -> None:
    here = Setup(range_size=5)
    names = await asyncio.gather(*(here.names.take() for _ in range(97)))
    assert len({name.wal_id for name in names}) == 97
    assert {name.marker for name in names} <= await here.markers()
    by_marker: dict[str, int] = {}
    for name in names:
        by_marker[name.marker] = by_marker.get(name.marker, 0) + 1
    assert max(by_marker.values()) <= 5
    await here.names.close()


async def test_the_next_range_is_reserved_before_it_is_needed() -> None:
    here = Setup()
    await here.names.take()
    assert len(await here.markers()) == 1
    await here.names.take()
    await here.settle_tasks()
    assert len(await here.markers()) == 2
    here.store.hold_commits()
    async with asyncio.timeout(10):
        names = [await here.names.take() for _ in range(3)]
    assert len({name.marker for name in names}) == 2
    here.store.release_commits()
    await here.names.close()


async def used_up(here: Setup) -> list[Name]:
    """A whole range, and one name of the next."""
    return [await here.names.take() for _ in range(RANGE + 1)]


async def test_a_marker_goes_when_all_of_its_names_are_settled() -> None:
    here = Setup()
    *names, following = await used_up(here)
    for name in names[:-1]:
        here.names.settled(name)
    await here.settle_tasks()
    assert names[0].marker in await here.markers()
    here.names.settled(names[-1])
    await here.settle_tasks()
    assert names[0].marker not in await here.markers()
    assert following.marker in await here.markers()


async def test_a_range_in_use_keeps_its_marker_though_all_so_far_is_settled() -> None:
    here = Setup()
    name = await here.names.take()
    here.names.settled(name)
    await here.settle_tasks()
    assert name.marker in await here.markers()
    assert (await here.names.take()).marker == name.marker


async def test_a_name_that_failed_keeps_its_marker_for_the_collector() -> None:
    here = Setup()
    failed, *names = await used_up(here)
    for name in names:
        here.names.settled(name)
    await here.names.close()
    assert await here.markers() == {failed.marker}


async def test_closing_removes_what_has_nothing_unsettled() -> None:
    here = Setup()
    for _ in range(RANGE + 3):
        here.names.settled(await here.names.take())
    await here.names.close()
    assert await here.markers() == set()


async def test_an_old_range_is_not_used_any_more() -> None:
    here = Setup()
    name = await here.names.take()
    here.names.settled(name)
    here.clock.now_ms += MAX_AGE_MS
    fresh = await here.names.take()
    assert fresh.marker != name.marker
    assert (await here.marker(fresh.marker)).created_ms == here.clock.now_ms
    await here.settle_tasks()
    assert name.marker not in await here.markers()


async def test_a_fenced_range_gives_no_more_names() -> None:
    here = Setup(range_size=100)
    names = [await here.names.take() for _ in range(3)]
    here.names.fenced(names[0])
    fresh = await here.names.take()
    assert fresh.marker != names[0].marker
    here.names.fenced(names[1])
    assert (await here.names.take()).marker == fresh.marker


async def test_without_its_marker_there_is_no_name() -> None:
    here = Setup()
    here.store.fail_commits(Fault.UNAVAILABLE)
    with pytest.raises(Unavailable, match="staging marker"):
        await here.names.take()
    assert await here.markers() == set()
    assert (await here.names.take()).marker in await here.markers()


async def test_a_range_that_could_not_be_reserved_ahead_is_asked_for_again() -> None:
    here = Setup()
    names = [await here.names.take()]
    here.store.fail_commits(Fault.UNAVAILABLE)
    names += [await here.names.take() for _ in range(RANGE - 1)]
    await here.settle_tasks()
    name = await here.names.take()
    assert name.marker != names[0].marker and name.marker in await here.markers()


async def test_one_who_gives_up_waiting_does_not_spoil_it_for_the_others() -> None:
    here = Setup()
    here.store.hold_commits()
    tasks = [asyncio.create_task(here.names.take()) for _ in range(3)]
    await here.settle_tasks()
    tasks[0].cancel()
    here.store.release_commits()
    names = await asyncio.gather(*tasks[1:])
    assert {name.marker for name in names} <= await here.markers()


async def test_a_marker_that_cannot_be_removed_stays_for_the_collector() -> None:
    here = Setup()
    *names, _ = await used_up(here)
    await here.settle_tasks()
    here.store.fail_commits(Fault.UNAVAILABLE)
    for name in names:
        here.names.settled(name)
    await here.settle_tasks()
    assert names[0].marker in await here.markers()
    assert (await here.names.take()).marker in await here.markers()
