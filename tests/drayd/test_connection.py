"""Connections over real sockets, with a dispatcher of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from struct import Struct

from drayd.connection import Connection, Reply
from drayd.kinds import HostPort
from drayd.metrics import Metrics
from drayd.server import Server

SIZE = Struct(">i")


@asynccontextmanager
async def listening(
    dispatch: Callable[[Connection, memoryview], Awaitable[Reply]], max_queued_bytes: int = 10**6
) -> AsyncIterator[tuple[Server, int]]:
    server = Server(
        dispatch,
        Metrics(),
        max_request_bytes=10**6,
        max_queued_bytes=max_queued_bytes,
        max_idle_ms=60_000,
        max_connections=100,
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
