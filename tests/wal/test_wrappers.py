"""The stores around a store: delayed, faulty, observed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from wal.delayed import Delayed
from wal.faulty import Fault, Faulty
from wal.objectstore import AlreadyExists, NotFound, ObjectStore, Unavailable, open_store
from wal.observed import Observation, Observed

WRAPPERS: dict[str, Callable[[ObjectStore], ObjectStore]] = {
    "delayed": lambda store: Delayed(store, put_ms=0.1, get_ms=0.1),
    "faulty": Faulty,
    "observed": lambda store: Observed(store, lambda _: None),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_a_wrapper_is_a_store(wrapper: str) -> None:
    inner = open_store("memory://")
    store = WRAPPERS[wrapper](inner)
    await store.put("a/one", [b"con", b"tent"])
    assert await inner.get("a/one") == b"content"
    assert await store.get("a/one") == b"content"
    assert bytes(await store.get_range("a/one", 1, 3)) == b"ont"
    assert (await store.head("a/one")).size == 7
    assert [info.path async for info in store.list("a")] == ["a/one"]
    with pytest.raises(AlreadyExists):
        await store.put("a/one", [b"again"])
    await store.delete("a/one")
    with pytest.raises(NotFound):
        await store.get("a/one")
    await store.close()


async def test_each_kind_of_call_has_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def record(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", record)
    store = Delayed(open_store("memory://"), put_ms=100, get_ms=30)
    await store.put("one", [b"x"])
    await store.get("one")
    await store.get_range("one", 0, 1)
    await store.head("one")
    assert len([info async for info in store.list("")]) == 1
    await store.delete("one")
    assert slept == [0.1, 0.03, 0.03, 0.03, 0.03, 0.1]


async def test_delayed_puts_are_done_side_by_side_before_their_answers() -> None:
    inner = open_store("memory://")
    store = Delayed(inner, put_ms=3_600_000)
    puts = [asyncio.create_task(store.put(f"{i}", [b"x"])) for i in range(20)]
    while len([info async for info in inner.list("")]) < 20:
        await asyncio.sleep(0)
    assert not any(put.done() for put in puts)
    for put in puts:
        put.cancel()
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(ValueError, match="put_ms -1"):
        Delayed(open_store("memory://"), put_ms=-1)


async def test_planned_failures_do_nothing_and_are_used_up() -> None:
    store = Faulty(open_store("memory://"))
    store.plan("put", Fault.FAIL, times=2)
    for _ in range(2):
        with pytest.raises(Unavailable, match="one"):
            await store.put("one", [b"x"])
    await store.put("one", [b"x"])
    assert store.calls["put"] == 3
    store.plan("get", None)
    store.plan("get", Fault.FAIL)
    assert await store.get("one") == b"x"
    with pytest.raises(Unavailable):
        await store.get_range("one", 0, 1)
    store.plan("list", Fault.FAIL)
    with pytest.raises(Unavailable):
        [info async for info in store.list("")]
    store.plan("delete", Fault.FAIL)
    store.clear()
    await store.delete("one")


async def test_a_lost_answer_leaves_the_object() -> None:
    store = Faulty(open_store("memory://"))
    store.plan("put", Fault.LOSE_ANSWER)
    with pytest.raises(Unavailable):
        await store.put("one", [b"x"])
    assert await store.get("one") == b"x"


async def test_a_held_call_waits_for_its_gate() -> None:
    inner = open_store("memory://")
    store = Faulty(inner)
    gate = store.hold("put", times=2)
    puts = [asyncio.create_task(store.put(name, [b"x"])) for name in ("one", "two", "three")]
    await gate.reached.wait()
    await puts[2]
    assert [info.path async for info in inner.list("")] == ["three"]
    puts[0].cancel()
    gate.open()
    await puts[1]
    assert [info.path async for info in inner.list("")] == ["three", "two"]


async def test_every_call_is_observed_with_its_outcome() -> None:
    seen: list[Observation] = []
    ticks = iter(range(1000))
    faulty = Faulty(open_store("memory://"))
    store = Observed(faulty, seen.append, clock=lambda: float(next(ticks)))
    await store.put("one", [b"abc", b"de"])
    with pytest.raises(AlreadyExists):
        await store.put("one", [b"x"])
    await store.get("one")
    await store.get_range("one", 1, 2)
    with pytest.raises(NotFound):
        await store.head("two")
    faulty.plan("delete", Fault.FAIL)
    with pytest.raises(Unavailable):
        await store.delete("one")
    assert [info.path async for info in store.list("")] == ["one"]
    gate = faulty.hold("put")
    held = asyncio.create_task(store.put("two", [b"x"]))
    await gate.reached.wait()
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    with pytest.raises(ValueError, match="negative"):
        await store.get_range("one", -1, 1)
    assert seen == [
        Observation("put", "ok", 1.0, 5),
        Observation("put", "already_exists", 1.0, 0),
        Observation("get", "ok", 1.0, 5),
        Observation("get", "ok", 1.0, 2),
        Observation("head", "not_found", 1.0, 0),
        Observation("delete", "unavailable", 1.0, 0),
        Observation("list", "ok", 1.0, 0),
        Observation("put", "cancelled", 1.0, 0),
        Observation("get", "error", 1.0, 0),
    ]
