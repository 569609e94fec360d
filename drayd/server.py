"""Listens for Kafka clients, and knows the open connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from drayd.arena import FrameMemory
from drayd.budget import Budget
from drayd.connection import SCRATCH_BYTES, Connection, Reply
from drayd.kinds import HostPort
from drayd.logs import Logger
from drayd.metrics import Metrics
from drayd.sockets import bound_port, open_listeners

log = Logger(__name__)

Dispatch = Callable[[Connection, memoryview], Awaitable[Reply]]
MAX_IDLE_CHECK_S = 30.0
DRAIN_CHECK_S = 0.01
GOODBYE_S = 1.0
"""How long a client has to close its side of a connection when the broker shuts down."""


class Server:
    def __init__(
        self,
        dispatch: Dispatch,
        metrics: Metrics,
        *,
        max_request_bytes: int,
        max_queued_bytes: int,
        max_idle_ms: int,
        max_connections: int,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatch = dispatch
        self.metrics = metrics
        self.max_request_bytes = max_request_bytes
        self.memory = FrameMemory()
        self.budget = Budget(max_queued_bytes)
        # One for all: what arrives in it is taken out before the loop reads again.
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._max_idle_s = max_idle_ms / 1000
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self._sockets: list[socket.socket] = []
        self._listeners: list[asyncio.Server] = []
        self._draining = False

    def bind(self, address: HostPort) -> int:
        """Takes the address; returns the port (of use when it was 0). Raises ListenError."""
        self._sockets = open_listeners(address)
        return bound_port(self._sockets)

    async def accept(self) -> None:
        """Serves those who have connected since `bind`, and all who come."""
        for listener in self._sockets:
            self._listeners.append(
                await self.loop.create_server(lambda: Connection(self), sock=listener)
            )

    def opened(self, connection: Connection) -> bool:
        """False: one too many."""
        if len(self._connections) >= self._max_connections or self._draining:
            self.metrics.connections_closed["limit"].inc()
            return False
        self._connections.add(connection)
        self.metrics.connections_accepted.inc()
        self.metrics.connections_active.set(len(self._connections))
        return True

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.metrics.connections_active.set(len(self._connections))

    async def close_idle(self) -> None:
        """Closes connections that say nothing for too long; runs until cancelled."""
        while True:
            await asyncio.sleep(min(self._max_idle_s / 4, MAX_IDLE_CHECK_S))
            oldest = self.loop.time() - self._max_idle_s
            for connection in list(self._connections):
                if connection.last_active < oldest and not (
                    connection.handling or connection.muted
                ):
                    self.metrics.connections_closed["idle"].inc()
                    connection.close("idle for longer than connections.max.idle.ms")

    def stop_accepting(self) -> None:
        self._draining = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.stop_reading()

    async def drain(self) -> None:
        """Waits until every request that was received has been answered."""
        while any(connection.handling for connection in self._connections):
            await asyncio.sleep(DRAIN_CHECK_S)

    async def close(self) -> None:
        """Ends every connection so that its answers arrive."""
        for connection in list(self._connections):
            connection.end()
        deadline = self.loop.time() + GOODBYE_S
        while self._connections and self.loop.time() < deadline:
            await asyncio.sleep(DRAIN_CHECK_S)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
