"""Which limit counts for whom, over a real store."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from drayd.quota_rates import Windows
from drayd.quotas import MAX_METERS, ClientQuotas
from metadata.memory import MemoryStore
from metadata.quotas import Alteration, Entity
from protocol.errors import ErrorCode, KafkaError

WINDOWS = Windows()


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


async def loaded(store: MemoryStore, clock: Clock) -> ClientQuotas:
    quotas = ClientQuotas(store, WINDOWS, clock)
    await quotas.load()
    return quotas


def _kinds(quotas: ClientQuotas) -> set[str]:
    """The kinds of limits that somebody has."""
    kinds = ("produce", "fetch", "request", "mutation", "connections")
    return {kind for kind in kinds if getattr(quotas, kind) is not None}


PRECEDENCE: tuple[Entity, ...] = (
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
)


async def test_the_most_specific_limit_counts() -> None:
    quotas = await loaded(MemoryStore(), Clock())
    await quotas.alter(
        [
            Alteration(entity, {"producer_byte_rate": float(number + 1)})
            for number, entity in enumerate(PRECEDENCE)
        ]
    )
    for number, entity in enumerate(PRECEDENCE):
        assert quotas.produce is not None
        found = quotas.produce.find("u", "c")
        assert found is not None
        assert found.limit == number + 1
        await quotas.alter([Alteration(entity, {}, {"producer_byte_rate"})])
    assert quotas.produce is None
    assert quotas.stored() == []


async def test_without_quotas_there_is_nothing_to_ask() -> None:
    quotas = await loaded(MemoryStore(), Clock())
    assert _kinds(quotas) == set()
    await quotas.alter([Alteration({"client-id": "c"}, {"consumer_byte_rate": 5.0})])
    assert _kinds(quotas) == {"fetch"}
    assert quotas.record_fetch("u", "other", 10**9) == 0
    assert quotas.record_fetch("u", "c", 10**9) > 0


async def test_who_shares_a_limit() -> None:
    quotas = await loaded(MemoryStore(), Clock())
    await quotas.alter(
        [
            Alteration({"user": "shared"}, {"producer_byte_rate": 100.0}),
            Alteration({"user": None, "client-id": None}, {"producer_byte_rate": 100.0}),
        ]
    )
    assert quotas.record_produce("shared", "one", 600) == 0
    assert quotas.record_produce("shared", "two", 600) > 0
    assert quotas.record_produce("u", "one", 600) == 0
    assert quotas.record_produce("u", "two", 600) == 0
    assert quotas.record_produce("v", "two", 600) == 0
    assert quotas.record_produce("u", "two", 600) > 0


async def test_a_new_limit_counts_what_was_measured_before() -> None:
    clock = Clock()
    quotas = await loaded(MemoryStore(), clock)
    await quotas.alter([Alteration({"user": "u"}, {"producer_byte_rate": 1e6})])
    assert quotas.record_produce("u", "c", 10_000) == 0
    await quotas.alter([Alteration({"user": "u"}, {"producer_byte_rate": 500.0})])
    assert quotas.record_produce("u", "c", 0) == 10_000


async def test_clients_cannot_fill_the_memory() -> None:
    quotas = await loaded(MemoryStore(), Clock())
    await quotas.alter([Alteration({"client-id": None}, {"producer_byte_rate": 1.0})])
    assert quotas.produce is not None
    for number in range(MAX_METERS + 100):
        quotas.record_produce("u", str(number), 1)
    assert len(quotas.produce._meters) == MAX_METERS
    assert len(quotas.produce._found) <= MAX_METERS


async def test_changes_of_another_broker_are_followed() -> None:
    store = MemoryStore()
    one, other = await loaded(store, Clock()), await loaded(store, Clock())
    following = asyncio.create_task(other.follow())
    await one.alter([Alteration({"user": "u"}, {"request_percentage": 5.0})])
    async with asyncio.timeout(20):
        while not _kinds(other):
            await asyncio.sleep(0)
    assert other.stored() == one.stored()
    await one.alter([Alteration({"user": "u"}, {}, {"request_percentage"})])
    async with asyncio.timeout(20):
        while _kinds(other):
            await asyncio.sleep(0)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    assert (await loaded(store, Clock())).stored() == []


@pytest.mark.parametrize("limit", [float("inf"), float("nan")])
async def test_what_is_no_number_limits_nothing(limit: float) -> None:
    quotas = await loaded(MemoryStore(), Clock())
    await quotas.alter([Alteration({"user": "u"}, {"producer_byte_rate": limit})])
    assert quotas.produce is None
    assert len(quotas.stored()) == 1


async def test_mutations_strict_and_not() -> None:
    clock = Clock()
    quotas = await loaded(MemoryStore(), clock)
    await quotas.alter([Alteration({"user": "u"}, {"controller_mutation_rate": 1.0})])
    first = quotas.mutations("u", "c", strict=True)
    # More than there is: once that is let through.
    first.take(WINDOWS.samples + 3)
    assert first.throttle_ms == 0
    second = quotas.mutations("u", "c", strict=True)
    with pytest.raises(KafkaError) as refused:
        second.take(1)
    assert refused.value.code is ErrorCode.throttling_quota_exceeded
    assert second.throttle_ms == 3000
    old = quotas.mutations("u", "c", strict=False)
    old.take(1)
    assert old.throttle_ms == 4000
    clock.now_ms += 4000
    third = quotas.mutations("u", "c", strict=True)
    third.take(1)
    assert third.throttle_ms == 0


async def test_connections_of_an_address() -> None:
    clock = Clock()
    quotas = await loaded(MemoryStore(), clock)
    await quotas.alter(
        [
            Alteration({"ip": None}, {"connection_creation_rate": 1.0}),
            Alteration({"ip": "10.0.0.1"}, {"connection_creation_rate": 2.0}),
        ]
    )
    assert quotas.connections is not None

    def accepted(address: str) -> int:
        assert quotas.connections is not None
        return sum(quotas.connections.record(address, clock.now_ms) == 0 for _ in range(100))

    assert accepted("10.0.0.2") == 10
    assert accepted("10.0.0.1") == 20
    assert 0 < quotas.connections.record("10.0.0.2", clock.now_ms) <= WINDOWS.window_ms
    clock.now_ms += 60_000
    assert accepted("10.0.0.2") == 10
