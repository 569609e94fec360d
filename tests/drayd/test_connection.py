"""Connections over real sockets, with a dispatcher of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from struct import Struct

from drayd.connection import Connection, Reply
from drayd.connection_limits import ConnectionLimits
from drayd.kinds import HostPort
from drayd.metrics import Metrics
from drayd.quota_rates import Windows
from drayd.quotas import AddressQuota
from drayd.server import Server
from metadata.values import Quota

SIZE = Struct(">i")


@asynccontextmanager
async def listening(
    dispatch: Callable[[Connection, memoryview], Awaitable[Reply]],
    max_queued_bytes: int = 10**6,
    max_idle_ms: int = 60_000,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[tuple[Server, int]]:
    server = Server(
        dispatch,
        Metrics(),
        max_request_bytes=10**6,
        max_queued_bytes=max_queued_bytes,
        max_idle_ms=max_idle_ms,
        limits=limits or ConnectionLimits(),
    )
    port = server.bind(HostPort("127.0.0.1", 0))
    await server.accept()
    try:
        yield server, port
    finally:
        server.stop_accepting()
        await server.close()


def frame(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
    return await reader.readexactly(size)


async def test_a_busy_client_does_not_hold_up_the_end() -> None:
    """It goes on sending: what comes after the drain has begun isn't taken in any more."""
    handled = 0

    async def echo(connection: Connection, data: memoryview) -> Reply:
        nonlocal handled
        handled += 1
        await asyncio.sleep(0)
        return [frame(bytes(data))]

    async with listening(echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send() -> None:
            while True:
                writer.write(frame(b"x" * 1000) * 50)
                await writer.drain()

        async def receive() -> None:
            while True:
                await answer(reader)

        tasks = [asyncio.create_task(send()), asyncio.create_task(receive())]
        while handled < 1000:
            await asyncio.sleep(0)
        server.stop_accepting()
        async with asyncio.timeout(20):
            await server.drain()
        # At most the one frame of which a part has arrived.
        assert server.budget.used <= 1000
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()


async def test_memory_comes_back_when_clients_go_away() -> None:
    waiting: list[asyncio.Future[list[bytes]]] = []

    async def never(connection: Connection, data: memoryview) -> Reply:
        future = asyncio.get_running_loop().create_future()
        waiting.append(future)
        return future

    async with listening(never, max_queued_bytes=5000) as (server, port):
        writers = []
        for _ in range(4):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            # Whole frames that wait for an answer, frames that wait for memory, half a frame.
            writer.write(frame(b"x" * 1000) * 10 + frame(b"y" * 1000)[:500])
            writers.append(writer)
        async with asyncio.timeout(20):
            while len(waiting) < 5 or server.budget.used != 5000:
                await asyncio.sleep(0)
            for writer in writers:
                writer.close()
                await writer.wait_closed()
            # What is under way holds its memory until it is done; the rest then follows.
            while server.budget.used or server._connections:
                while waiting:
                    waiting.pop().set_result([b"late"])
                await asyncio.sleep(0)


async def test_those_who_wait_for_memory_get_it_in_turn() -> None:
    release: list[asyncio.Future[list[bytes]]] = []

    async def later(connection: Connection, data: memoryview) -> Reply:
        future = asyncio.get_running_loop().create_future()
        release.append(future)
        return future

    async with listening(later, max_queued_bytes=2000) as (server, port):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for _, writer in clients:
            writer.write(frame(b"z" * 1500))
        async with asyncio.timeout(20):
            for _ in clients:
                while not release:
                    await asyncio.sleep(0)
                release.pop().set_result([frame(b"done")])
            for reader, writer in clients:
                assert await answer(reader) == b"done"
                writer.close()
            while server.budget.used:
                await asyncio.sleep(0)


async def closes(reader: asyncio.StreamReader) -> bool:
    """Waits for the end of a connection."""
    async with asyncio.timeout(20):
        try:
            return await reader.read(1) == b""
        except ConnectionError:
            return True


async def gone(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def echo(connection: Connection, data: memoryview) -> Reply:
    return [frame(bytes(data))]


async def test_an_address_has_only_so_many_connections() -> None:
    limits = ConnectionLimits(max_per_address=2)
    async with listening(echo, limits=limits) as (server, port):
        first, second, third = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert await closes(third[0])
        first[1].write(frame(b"x"))
        assert await answer(first[0]) == b"x"
        assert server.metrics.connections_closed["limit"]._value.get() == 1
        second[1].close()
        async with asyncio.timeout(20):
            while len(server._connections) > 1:
                await asyncio.sleep(0)
        fourth = await asyncio.open_connection("127.0.0.1", port)
        fourth[1].write(frame(b"y"))
        assert await answer(fourth[0]) == b"y"
        for _, writer in (first, second, third, fourth):
            await gone(writer)


async def test_some_addresses_may_have_more() -> None:
    limits = ConnectionLimits(max_per_address=0, overrides={"127.0.0.1": 1})
    async with listening(echo, limits=limits) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"x"))
        assert await answer(reader) == b"x"
        await gone(writer)


async def test_an_address_that_connects_too_fast_is_held_back_and_closed() -> None:
    quota = AddressQuota(Windows())
    quota.use([Quota({"ip": None}, {"connection_creation_rate": 1.0})])
    limits = ConnectionLimits(quota=lambda: quota)
    async with listening(echo, limits=limits) as (server, port):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(11)]
        clients[0][1].write(frame(b"x"))
        assert await answer(clients[0][0]) == b"x"
        assert await closes(clients[-1][0])
        assert server.metrics.connections_closed["rate"]._value.get() == 1
        for _, writer in clients:
            await gone(writer)


async def test_a_client_that_does_not_read_is_closed_and_its_memory_comes_back() -> None:
    async def large(connection: Connection, data: memoryview) -> Reply:
        return [frame(bytes(50_000_000))]

    async with listening(large, max_queued_bytes=10**6, max_idle_ms=500) as (server, port):
        closing = asyncio.create_task(server.close_idle())
        # Nobody reads from the stream, so it stops to read from the socket at its limit.
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(frame(b"x"))
        async with asyncio.timeout(20):
            while not server.budget.used > 10**6:
                await asyncio.sleep(0)
            while server._connections:
                await asyncio.sleep(0.01)
        assert server.budget.used == 0
        assert server.metrics.connections_closed["stalled"]._value.get() == 1
        await ended(closing)
        await gone(writer)


async def test_a_client_that_does_not_finish_its_request_is_closed() -> None:
    async with listening(echo, max_idle_ms=500) as (server, port):
        closing = asyncio.create_task(server.close_idle())
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b"x" * 1000)[:100])

        async def drip() -> None:
            """It isn't idle, it is slow."""
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(20):
            while not server._connections:
                await asyncio.sleep(0)
            while server._connections:
                await asyncio.sleep(0.01)
        assert server.budget.used == 0
        assert server.metrics.connections_closed["stalled"]._value.get() == 1
        await ended(dripping, closing)
        await gone(writer)


def test_accepting_goes_no_faster_than_it_may() -> None:
    limits = ConnectionLimits(max_per_second=2)
    assert [limits.pause_ms(0) for _ in range(20)] == [0] * 20
    assert limits.pause_ms(0) == 500
    assert ConnectionLimits().pause_ms(0) == 0


def test_what_is_given_back_can_be_taken_again() -> None:
    limits = ConnectionLimits(max_connections=2, max_per_address=1)
    assert limits.take("a")
    assert not limits.take("a")
    assert limits.take("b")
    before = limits.full
    limits.give_back("a")
    assert (before, limits.full) == (True, False)
    assert limits.take("a")
