"""One client connection: frames in, answers out in the same order.

Requests are handled one after the other. Only a Produce that waits for its flush and a Fetch
that waits for data are left behind by the requests after them: their handlers return a future.
Answers always leave in the order of the requests.

Frames are received straight into their own memory when they are large. The memory of requests
in flight is bounded across connections by a `Budget`: a connection that gets none stops reading.
It also stops handling requests while the client doesn't take its answers.

A client over its quota is muted: nothing more is read from it until its time is over. What was read
by then is still handled, and a frame that has begun is still received, so that a muted
connection holds no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, cast

from drayd.logs import Logger, bind
from drayd.quotas import ANONYMOUS
from protocol.errors import Malformed
from protocol.writer import Buffer

if TYPE_CHECKING:
    from drayd.server import Server

log = Logger(__name__)

SCRATCH_BYTES = 64 * 1024
MAX_QUEUED_FRAMES = 64
UNSENT_BYTES = 256 * 1024
"""With more that the client hasn't taken its next requests wait, and what it hasn't taken counts
as memory in use."""
_SIZE = Struct(">i")
_TLS_HANDSHAKE = 0x16


class Unanswered(NamedTuple):
    """A request that gets no answer (acks=0) but is in flight until `done`; an error in it
    closes the connection, which is how its client hears of it."""

    done: asyncio.Future[bool]


Answer = Sequence[Buffer]
Reply = Answer | asyncio.Future[Answer] | Unanswered


class _Slot:
    __slots__ = ("answer", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.answer: Answer | None = None


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: Server, address: str = "") -> None:
        self._server = server
        self.address = address
        self._loop = server.loop
        self._transport: asyncio.Transport | None = None
        self._prefix = b""
        self._frame: memoryview | None = None
        self._received = 0
        self._unread = b""
        self._wanted = 0
        self._frames: deque[memoryview] = deque()
        self._slots: deque[_Slot] = deque()
        self._futures: set[asyncio.Future[Answer]] = set()
        self._unanswered = 0
        self._arrived: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._reading = True
        self._stopped = False
        self._closing = False
        self._ended = False
        self._frame_since = self._last_read = self._taken_at = self._loop.time()
        self._written = self._taken = self._unsent_held = 0
        self._muted_until = 0.0
        self._unmute_timer: asyncio.TimerHandle | None = None
        self.client_id: str | None = None
        self.user = ANONYMOUS
        """Whom quotas count for. Authentication will say."""
        self.peer = ""
        self.last_active = self._loop.time()

    # -- the transport's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        if self._server.opened(self):
            self._task = self._loop.create_task(self._serve())
            self._task.add_done_callback(self._served)
        else:
            self.close("the broker shuts down")

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._wanted:
            self._server.budget.forget(self._resume)
            self._wanted = 0
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self._task is not None:
            self._task.cancel()
        for future in list(self._futures):
            future.cancel()
        if self._frame is not None:
            self._server.budget.release(len(self._frame))
            self._frame = None
        while self._frames:
            self._server.budget.release(len(self._frames.popleft()))
        while self._slots:
            self._server.budget.release(self._slots.popleft().size)
        self._count_unsent(0)
        self._server.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None or self._ended:
            return self._server.scratch
        return self._frame[self._received :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        self.last_active = self._last_read = self._loop.time()
        self._server.metrics.received_bytes.inc(nbytes)
        if self._frame is None:
            self._split(self._server.scratch[:nbytes])
            return
        self._received += nbytes
        if self._received == len(self._frame):
            frame, self._frame = self._frame, None
            self._enqueue(frame)
            if self.muted:
                self._pause_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        self._count_unsent(0)
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # -- frames ------------------------------------------------------------------------------

    def _split(self, data: memoryview) -> None:
        """Takes frames from bytes that stay valid only during this call."""
        if self._prefix:
            data = memoryview(self._prefix + data)
            self._prefix = b""
        at = 0
        while len(data) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, at)
            if not 0 < size <= self._server.max_request_bytes:
                self._refuse_size(size, data[at])
                return
            if self._closing:
                return
            if not self._server.budget.acquire(size, self._resume):
                self._wanted = size
                self._unread = bytes(data[at:])
                self._pause_reading()
                return
            at += _SIZE.size
            frame = self._server.memory.frame(size)
            have = min(size, len(data) - at)
            frame[:have] = data[at : at + have]
            at += have
            if have < size:
                self._frame, self._received = frame, have
                self._frame_since = self._loop.time()
                return
            self._enqueue(frame)
        self._prefix = bytes(data[at:])

    def _refuse_size(self, size: int, first_byte: int) -> None:
        if first_byte == _TLS_HANDSHAKE:
            self.close("a TLS hello on a plaintext listener")
        else:
            self.close(f"a frame of {size} bytes isn't between 1 and socket.request.max.bytes")

    def _resume(self) -> None:
        """The budget may have room for the frame that we wanted."""
        self._wanted = 0
        unread, self._unread = self._unread, b""
        self._split(memoryview(unread))
        if not self._wanted:
            self._continue_reading()

    def _enqueue(self, frame: memoryview) -> None:
        self._frames.append(frame)
        if len(self._frames) >= MAX_QUEUED_FRAMES:
            self._pause_reading()
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None and not self._closing:
            self._reading = False
            self._transport.pause_reading()

    def _continue_reading(self) -> None:
        if (
            not self._reading
            and not self._stopped
            and not self._wanted
            and not self._closing
            and not (self.muted and self._frame is None)
            and len(self._frames) < MAX_QUEUED_FRAMES
            and self._transport is not None
        ):
            self._reading = True
            # What the client couldn't send while we didn't read isn't its fault.
            self._frame_since = self._last_read = self._loop.time()
            self._transport.resume_reading()

    @property
    def muted(self) -> bool:
        return self._unmute_timer is not None

    def mute(self, throttle_ms: int) -> None:
        """Reads nothing more for so long, as Kafka does with clients over their quota."""
        until = self._loop.time() + throttle_ms / 1000
        if until <= self._muted_until or self._closing:
            return
        self._muted_until = until
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._unmute_timer = self._loop.call_at(until, self._unmute)
        if self._frame is None:
            self._pause_reading()

    def _unmute(self) -> None:
        self._unmute_timer = None
        self.last_active = self._loop.time()
        self._continue_reading()

    # -- requests ----------------------------------------------------------------------------

    async def _serve(self) -> None:
        bind(connection=self.peer)
        while True:
            while not self._frames:
                self._arrived = self._loop.create_future()
                await self._arrived
            if self._writable is not None:
                await self._writable
            try:
                # In a call of its own: a connection that waits for the next request must not
                # keep the last one, or its answer, in memory.
                await self._handle_next()
            except Malformed as error:
                self.close(str(error))
                return

    async def _handle_next(self) -> None:
        frame = self._frames.popleft()
        self._continue_reading()
        slot = _Slot(len(frame))
        self._slots.append(slot)
        self._take(slot, await self._server.dispatch(self, frame))

    def hold_memory(self, until: asyncio.Future[None]) -> None:
        """Counts the frame of the request at hand as in flight until then, whatever becomes of
        its answer and of the connection."""
        slot = self._slots[-1]
        size, slot.size = slot.size, 0
        until.add_done_callback(lambda _: self._server.budget.release(size))

    def _served(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.exception("a connection failed", error, connection=self.peer)
            self.close("an internal error")

    def _take(self, slot: _Slot, reply: Reply) -> None:
        if isinstance(reply, asyncio.Future):
            self._futures.add(reply)
            reply.add_done_callback(lambda done: self._finished(slot, done))
        elif isinstance(reply, Unanswered):
            # Later answers need not wait for it, its memory does.
            self._slots.remove(slot)
            self._unanswered += 1
            reply.done.add_done_callback(lambda done: self._settled(slot.size, done))
        else:
            slot.answer = reply
            self._send()

    def _finished(self, slot: _Slot, done: asyncio.Future[Answer]) -> None:
        self._futures.discard(done)
        if done.cancelled() or slot not in self._slots:
            return
        error = done.exception()
        if error is not None:
            self.close(str(error))
            return
        slot.answer = done.result()
        self._send()

    def _settled(self, size: int, done: asyncio.Future[bool]) -> None:
        self._unanswered -= 1
        self._server.budget.release(size)
        if not done.cancelled() and not done.result():
            self.close("a produce request without acknowledgement failed")

    def _send(self) -> None:
        out: list[Buffer] = []
        freed = 0
        while self._slots and self._slots[0].answer is not None:
            slot = self._slots.popleft()
            out.extend(slot.answer or ())
            freed += slot.size
        if out and self._transport is not None and not self._closing:
            self.last_active = self._loop.time()
            if not self._transport.get_write_buffer_size():
                self._taken, self._taken_at = self._written, self.last_active
            self._transport.writelines(out)
            size = sum(map(len, out))
            self._written += size
            self._server.metrics.sent_bytes.inc(size)
            if self._writable is not None:
                self._count_unsent(self._transport.get_write_buffer_size())
        if freed:
            self._server.budget.release(freed)

    def _count_unsent(self, size: int) -> None:
        """Answers that the client doesn't take count as memory of requests in flight, beyond what
        every connection may have."""
        held, self._unsent_held = self._unsent_held, size
        if size > held:
            self._server.budget.hold(size - held)
        elif size < held:
            self._server.budget.release(held - size)

    def stalled(self, now: float, patience_s: float, frame_s: float) -> str | None:
        """Why this connection holds memory for nothing: no byte of its answers was taken, or of
        its frame sent, for `patience_s`; or the frame isn't complete after `frame_s`."""
        if self._transport is None:
            return None
        # Also of one that is closing: it closes when its answers are taken.
        unsent = self._transport.get_write_buffer_size()
        taken = self._written - unsent
        if taken != self._taken or not unsent:
            self._taken, self._taken_at = taken, now
        elif now - self._taken_at > patience_s:
            return "the client doesn't read its answers"
        if self._frame is None or not self._reading or self._closing:
            return None
        if now - self._last_read > patience_s or now - self._frame_since > frame_s:
            return "the client doesn't finish a request"
        return None

    @property
    def handling(self) -> bool:
        """A request that was received whole isn't answered yet."""
        return bool(self._frames or self._slots or self._unanswered)

    def stop_reading(self) -> None:
        """For good: what was received is still handled."""
        self._stopped = True
        self._pause_reading()

    def end(self) -> None:
        """Closes our side and throws away what the client still sends, until it closes its own.
        To close at once would reset the connection if anything was left unread, and answers
        that are on their way would be lost."""
        if self._closing or self._transport is None:
            return
        self._closing = self._ended = True
        # The client may be gone already.
        with suppress(OSError):
            if self._transport.can_write_eof():
                self._transport.write_eof()
        if not self._reading:
            self._transport.resume_reading()

    def abort(self, reason: str = "") -> None:
        if self._transport is not None:
            if reason:
                log.info(
                    "connection closed",
                    reason=reason,
                    connection=self.peer,
                    client_id=self.client_id,
                )
            self._transport.abort()

    def close(self, reason: str) -> None:
        if self._closing or self._transport is None:
            return
        log.info("connection closed", reason=reason, connection=self.peer, client_id=self.client_id)
        self._closing = True
        self._transport.close()
