"""Listens for Kafka clients, and knows the open connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from drayd.arena import FrameMemory
from drayd.budget import Budget
from drayd.connection import SCRATCH_BYTES, Connection, Reply
from drayd.connection_limits import ConnectionLimits
from drayd.kinds import HostPort
from drayd.logs import Logger
from drayd.metrics import Metrics
from drayd.sockets import bound_port, open_listeners

log = Logger(__name__)

Dispatch = Callable[[Connection, memoryview], Awaitable[Reply]]
MAX_IDLE_CHECK_S = 30.0
PRESSURE_CHECK_S = 1.0
MAX_STALL_UNDER_PRESSURE_S = 10.0
"""While others wait for memory, a client that takes no byte of its answers for so long, or sends
no byte of the frame that it has begun, is closed."""
ACCEPT_RETRY_S = 0.5
SAY_AGAIN_S = 10.0
"""At most one log line about refused connections in this time."""
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
        limits: ConnectionLimits,
        backlog: int = 1024,
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
        self.limits = limits
        self._backlog = backlog
        self._connections: set[Connection] = set()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._held_back: set[socket.socket] = set()
        self._freed = asyncio.Event()
        self._said: dict[str, float] = {}
        self._draining = False

    def bind(self, address: HostPort) -> int:
        """Takes the address; returns the port (of use when it was 0). Raises ListenError."""
        self._sockets = open_listeners(address, backlog=self._backlog)
        return bound_port(self._sockets)

    # -- accepting ---------------------------------------------------------------------------

    async def accept(self) -> None:
        """Serves those who have connected since `bind`, and all who come."""
        for listener in self._sockets:
            self._accepting.append(self.loop.create_task(self._accept_all(listener)))

    async def _accept_all(self, listener: socket.socket) -> None:
        while True:
            while self.limits.full:
                self._freed.clear()
                self._say("max.connections is reached: others have to wait")
                await self._freed.wait()
            try:
                client, peer = await self.loop.sock_accept(listener)
            except OSError as error:
                # Out of file descriptors, most likely: those who go leave some.
                self._say("a connection could not be accepted", error=str(error))
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            try:
                await self._admit(client, str(peer[0]))
            except BaseException:
                client.close()
                raise

    async def _admit(self, client: socket.socket, address: str) -> None:
        now_ms = int(self.loop.time() * 1000)
        held_back_ms = self.limits.held_back_ms(address, now_ms)
        if held_back_ms:
            self.metrics.connections_closed["rate"].inc()
            self._say("an address connects faster than its quota", address=address)
            self._held_back.add(client)
            self.loop.call_later(held_back_ms / 1000, self._let_go, client)
            return
        pause_ms = self.limits.pause_ms(now_ms)
        if pause_ms:
            self._say("max.connection.creation.rate is reached: others have to wait")
            await asyncio.sleep(pause_ms / 1000)
        if not self.limits.take(address):
            self.metrics.connections_closed["limit"].inc()
            self._say(
                "an address has as many connections as it may have",
                address=address,
                connections=self.limits.allowed(address),
            )
            client.close()
            return
        try:
            await self.loop.connect_accepted_socket(lambda: Connection(self, address), client)
        except OSError as error:
            # It has gone already.
            self.limits.give_back(address)
            self._say("a connection could not be served", error=str(error))

    def _let_go(self, client: socket.socket) -> None:
        self._held_back.discard(client)
        client.close()

    def _say(self, what: str, **details: object) -> None:
        """A log line, but not one for every client that is refused."""
        now = self.loop.time()
        if now - self._said.get(what, -SAY_AGAIN_S) >= SAY_AGAIN_S:
            self._said[what] = now
            log.warning(what, **details)

    def opened(self, connection: Connection) -> bool:
        """False: too late."""
        self._connections.add(connection)
        self.metrics.connections_accepted.inc()
        self.metrics.connections_active.set(len(self._connections))
        return not self._draining

    def closed(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.limits.give_back(connection.address)
            self._freed.set()
        self.metrics.connections_active.set(len(self._connections))

    # -- closing those who do nothing --------------------------------------------------------

    async def close_idle(self) -> None:
        """Closes connections that say nothing for too long, and those that hold memory and don't
        get on; runs until cancelled."""
        every_s = min(self._max_idle_s / 4, MAX_IDLE_CHECK_S)
        pressed_s = min(every_s, PRESSURE_CHECK_S)
        last = self.loop.time()
        while True:
            await asyncio.sleep(pressed_s)
            now = self.loop.time()
            pressure = self.budget.in_line > 0
            if pressure or now - last >= every_s:
                last = now
                self._close_idle(now, pressure)

    def _close_idle(self, now: float, pressure: bool) -> None:
        patience_s = self._max_idle_s
        if pressure:
            patience_s = min(patience_s, MAX_STALL_UNDER_PRESSURE_S)
        for connection in list(self._connections):
            stalled = connection.stalled(now, patience_s, self._max_idle_s)
            if stalled is not None:
                self.metrics.connections_closed["stalled"].inc()
                # At once: what it has to be sent is what it doesn't take.
                connection.abort(stalled)
            elif now - connection.last_active > self._max_idle_s and not (
                connection.handling or connection.muted
            ):
                self.metrics.connections_closed["idle"].inc()
                connection.close("idle for longer than connections.max.idle.ms")

    # -- the end -----------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        self._draining = True
        for task in self._accepting:
            task.cancel()
        for connection in list(self._connections):
            connection.stop_reading()

    async def drain(self) -> None:
        """Waits until every request that was received has been answered."""
        while any(connection.handling for connection in self._connections):
            await asyncio.sleep(DRAIN_CHECK_S)

    async def close(self) -> None:
        """Ends every connection so that its answers arrive."""
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listener in self._sockets:
            listener.close()
        for client in list(self._held_back):
            self._let_go(client)
        for connection in list(self._connections):
            connection.end()
        deadline = self.loop.time() + GOODBYE_S
        while self._connections and self.loop.time() < deadline:
            await asyncio.sleep(DRAIN_CHECK_S)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
