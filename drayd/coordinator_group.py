"""One group while this broker runs it: a queue, a state machine, timers, and whoever waits.

What is asked of a group is done in order, one after the other: the machine decides, what it wants
to have stored is committed, and only then the new state counts and the replies are sent. Offset
commits that queue up share one commit.

Invariants:

- Nothing is answered unless this broker's registration is the one that loaded the group, checked
  right before the answer: while it is, nobody else can have taken the lease.
- Every way in which a write can fail ends in one of two: nothing has happened (the old state
  stays), or nobody knows (all is forgotten, and the next request takes the lease anew and reads,
  after which a commit that was on its way can't be applied any more).
- A group that isn't stored and has nobody waiting isn't kept in memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from drayd.groups.machine import (
    NOBODY,
    Admission,
    Committer,
    Decision,
    Env,
    Event,
    GroupSettings,
    Kind,
    Machine,
    Request,
    Summary,
    Tick,
    Token,
    TopicsView,
)
from drayd.logs import Logger
from drayd.membership import Membership
from drayd.metrics import Metrics
from metadata.group_values import CommittedOffset, ConsumerRecord
from metadata.groups import Groups, Held, HeldElsewhere, Holder, LeaseLost, Partition, Stored
from metadata.store import CommitUnknown, StoreError
from protocol.errors import ErrorCode, KafkaError

log = Logger(__name__)

T = TypeVar("T")

MAX_COMMITS_AT_ONCE = 256
TICK_RETRY_MS = 500
LATE_MS = 1_000
"""A timer that is this late tells of a process that stood still: what members have sent
meanwhile is heard before anybody is thrown out."""

_GENERATION_UNKNOWN = -1


@dataclass(slots=True)
class World:
    """What all groups of a coordinator share."""

    stored: Groups
    membership: Membership
    machines: Mapping[Kind, Machine]
    topics: TopicsView
    settings_of: Callable[[str], GroupSettings]
    metrics: Metrics
    clock_ms: Callable[[], int]
    """Monotonic."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    forget: Callable[[LiveGroup], None]
    closing: bool = False
    next_token: Token = 0

    def token(self) -> Token:
        self.next_token += 1
        return self.next_token


@dataclass(slots=True, eq=False)
class _Ask:
    event: Event
    future: asyncio.Future[Any] | None


@dataclass(slots=True, eq=False)
class _Commit:
    committer: Committer
    offsets: Mapping[Partition, CommittedOffset]
    future: asyncio.Future[Any]
    code: ErrorCode = ErrorCode.none


@dataclass(slots=True, eq=False)
class _Do:
    action: Callable[[LiveGroup], Awaitable[Any]]
    future: asyncio.Future[Any]


_Work = _Ask | _Commit | _Do


@dataclass(slots=True, eq=False)
class LiveGroup:
    group_id: str
    world: World
    kind: Kind = Kind.CLASSIC
    state: Any = None
    offsets: dict[Partition, CommittedOffset] = field(default_factory=dict)
    written_ms: int | None = None
    """When the stored record changed; None if there is none."""
    known: bool = False
    """It existed since it was loaded. As in Kafka, a group that lost its last offset stays in
    memory until it is swept."""
    held: Held | None = None
    _holder: Holder | None = None
    """The registration that loaded the group; None: it isn't loaded."""
    _queue: deque[_Work] = field(default_factory=deque)
    _worker: asyncio.Task[None] | None = None
    _waiting: dict[Token, asyncio.Future[Any]] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _timer_ms: int = 0

    # -- what others ask ---------------------------------------------------------------------

    def ask(self, event: Event) -> asyncio.Future[Any]:
        """Tells the machine; the answer is its reply. KafkaError if there can't be one."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self._decided_at_once(event, future):
            self._push(_Ask(event, future))
        return future

    def commit(
        self, committer: Committer, offsets: Mapping[Partition, CommittedOffset]
    ) -> asyncio.Future[ErrorCode]:
        """Stores offsets; the code says whether the committer may."""
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._push(_Commit(committer, offsets, future))
        return future

    async def look(self, read: Callable[[LiveGroup], T]) -> T:
        """What `read` sees after everything that was asked before."""
        if self._ready:
            return read(self)

        async def action(group: LiveGroup) -> T:
            return read(group)

        return await self.do(action)

    def do(self, action: Callable[[LiveGroup], Awaitable[T]]) -> asyncio.Future[T]:
        """Runs `action` in the group's turn."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._push(_Do(action, future))
        return future

    @property
    def loaded(self) -> bool:
        return self._holder is not None

    @property
    def busy(self) -> bool:
        return self._worker is not None

    @property
    def worker(self) -> asyncio.Task[None] | None:
        return self._worker

    @property
    def exists(self) -> bool:
        """As a client sees it."""
        return self.known or self.written_ms is not None or not self.summary().idle

    def summary(self) -> Summary:
        return self.world.machines[self.kind].summary(self.state)

    def env(self, token: Token = NOBODY) -> Env:
        world = self.world
        return Env(world.clock_ms(), world.settings_of(self.group_id), world.topics, token)

    # -- the queue ---------------------------------------------------------------------------

    @property
    def _ready(self) -> bool:
        """Loaded by the registration that this broker still has, and nothing under way."""
        return (
            self._worker is None
            and self._holder is not None
            and self._holder == self.world.membership.holder
            and not self.world.closing
        )

    def _push(self, work: _Work) -> None:
        self._queue.append(work)
        if self._worker is None:
            self._worker = self.world.spawn(self._work())

    async def _work(self) -> None:
        try:
            while True:
                while self._queue:
                    await self._step()
                if self._holder is not None and self._useless:
                    await self._vanish()
                if not self._queue:
                    return
        except Exception as error:  # the boundary: one group must not end the others
            log.exception("a group failed unexpectedly", error, group=self.group_id)
            self.unload(ErrorCode.unknown_server_error)
            self._fail_queue(ErrorCode.unknown_server_error)
        finally:
            self._worker = None
            if self._holder is None and not self._queue:
                self.world.forget(self)

    async def _step(self) -> None:
        holder = self.world.membership.holder
        if holder is None or self.world.closing:
            self.unload(ErrorCode.not_coordinator)
            self._fail_queue(ErrorCode.not_coordinator)
            return
        try:
            if self._holder != holder:
                self.unload(ErrorCode.not_coordinator)
                await self._load(holder)
        except HeldElsewhere:
            self.unload(ErrorCode.not_coordinator)
            self._fail_queue(ErrorCode.not_coordinator)
            return
        except StoreError as error:
            log.warning("a group can't be loaded", group=self.group_id, error=str(error))
            self.unload(ErrorCode.coordinator_not_available)
            self._fail_queue(ErrorCode.coordinator_not_available)
            return
        work = self._queue.popleft()
        batch = [work]
        if isinstance(work, _Commit):
            while (
                self._queue
                and isinstance(self._queue[0], _Commit)
                and len(batch) < MAX_COMMITS_AT_ONCE
            ):
                batch.append(self._queue.popleft())
        try:
            await self._run(work, batch)
        except (LeaseLost, HeldElsewhere):
            log.info("another broker runs the group", group=self.group_id)
            self._fail(batch, ErrorCode.not_coordinator)
            self.unload(ErrorCode.not_coordinator)
        except CommitUnknown as error:
            log.warning("a group is read again", group=self.group_id, error=str(error))
            self._fail(batch, ErrorCode.not_coordinator)
            self.unload(ErrorCode.not_coordinator)
        except StoreError as error:
            log.warning("a group can't be stored", group=self.group_id, error=str(error))
            self._fail(batch, ErrorCode.coordinator_not_available)
            if isinstance(work, _Ask) and isinstance(work.event, Tick):
                self._arm(self.world.clock_ms() + TICK_RETRY_MS)
        except BaseException:
            # Of the boundary above, or of the end of the process: nobody waits for ever.
            self._fail(batch, ErrorCode.unknown_server_error)
            raise

    async def _run(self, work: _Work, batch: list[_Work]) -> None:
        match work:
            case _Ask():
                await self._answer(work)
            case _Commit():
                await self._commit([each for each in batch if isinstance(each, _Commit)])
            case _Do():
                try:
                    result = await work.action(self)
                except KafkaError as error:
                    _settle(work.future, error)
                    return
                self._check_still_ours()
                _settle(work.future, result)

    def _check_still_ours(self) -> None:
        if self._holder is None or self._holder != self.world.membership.holder:
            raise LeaseLost(self.group_id)

    # -- loading and forgetting --------------------------------------------------------------

    async def _load(self, holder: Holder) -> None:
        if await self.world.stored.lease(self.group_id) is None:
            # Nobody has it and nothing is stored. A lease is taken with the first write.
            self._restore(Stored(None, {}))
        else:
            self.held, stored = await self.world.stored.open(self.group_id, holder)
            self._restore(stored)
        self._holder = holder

    async def hold(self) -> Held:
        """The lease, which a group that isn't stored has not yet."""
        if self.held is None:
            assert self._holder is not None
            self.held, stored = await self.world.stored.open(self.group_id, self._holder)
            if stored.exists:
                # Another broker had it since we looked.
                self._restore(stored)
        return self.held

    def _restore(self, stored: Stored) -> None:
        self.offsets = dict(stored.offsets)
        self.known = stored.exists
        self.written_ms = None
        self.kind = Kind.CLASSIC
        if stored.group is None:
            self.state = self.world.machines[self.kind].fresh(self.group_id)
            return
        record = stored.group.record
        if isinstance(record, ConsumerRecord):
            self.kind = Kind.CONSUMER
        self.written_ms = stored.group.written_ms
        decision = self.world.machines[self.kind].restore(self.group_id, record, self.env())
        self.state = decision.state
        self._arm(decision.wake_ms)

    def unload(self, code: ErrorCode) -> None:
        """Forgets everything; whoever waits for the machine gets the code."""
        self._holder = self.held = None
        self.state, self.written_ms, self.known = None, None, False
        self.kind = Kind.CLASSIC
        self.offsets = {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            _settle(future, KafkaError(code))

    @property
    def _useless(self) -> bool:
        """Whether there is no reason to keep the group in memory."""
        if self.known or self.written_ms is not None or self._waiting:
            return False
        return self.summary().idle

    async def _vanish(self) -> None:
        """Leaves nothing behind of a group that doesn't exist."""
        if self.held is not None:
            try:
                await self.world.stored.delete(self.held, ())
            except (LeaseLost, StoreError) as error:
                log.debug("a lease stays", group=self.group_id, error=str(error))
        if not self._queue:
            self.unload(ErrorCode.not_coordinator)
        else:
            self.held = None

    def _fail(self, batch: list[_Work], code: ErrorCode) -> None:
        for work in batch:
            if work.future is not None:
                _settle(work.future, KafkaError(code))

    def _fail_queue(self, code: ErrorCode) -> None:
        queue, self._queue = self._queue, deque()
        self._fail(list(queue), code)

    # -- the machine -------------------------------------------------------------------------

    def _target(self, event: Event) -> tuple[Kind, Any]:
        """The machine that gets the event, and its state. An idle group becomes one of the kind
        that is asked for."""
        if isinstance(event, Request) and event.kind is not self.kind:
            idle = self.summary().idle
            if idle and (event.creates or not self.exists):
                return event.kind, self.world.machines[event.kind].fresh(self.group_id)
        return self.kind, self.state

    def _decided_at_once(self, event: Event, future: asyncio.Future[Any] | None) -> bool:
        """The short way, of most heartbeats: nothing to store, nothing under way."""
        if not self._ready or self.held is None:
            return False
        kind, state = self._target(event)
        token = self.world.token()
        decision = self.world.machines[kind].decide(state, event, self.env(token))
        if decision.record is not None or decision.delete:
            return False
        if future is not None:
            self._waiting[token] = future
        self._apply(kind, decision)
        if self._useless:
            self._push(_Ask(Tick(), None))
        return True

    async def _answer(self, work: _Ask) -> None:
        event = work.event
        if isinstance(event, Request) and event.creates:
            await self.hold()
        token = self.world.token()
        while True:
            kind, state = self._target(event)
            machine = self.world.machines[kind]
            decision: Decision[Any] = machine.decide(state, event, self.env(token))
            if decision.record is None and not decision.delete:
                break
            if self.held is not None:
                await self._store(self.held, decision)
                break
            await self.hold()
        self._check_still_ours()
        if work.future is not None:
            self._waiting[token] = work.future
        self._apply(kind, decision)

    async def _store(self, held: Held, decision: Decision[Any]) -> None:
        if decision.record is not None:
            group = await self.world.stored.save(held, decision.record)
            self.written_ms = group.written_ms
        elif self.written_ms is not None:
            await self.world.stored.drop_record(held)
            self.written_ms = None

    def _apply(self, kind: Kind, decision: Decision[Any]) -> None:
        self.kind, self.state = kind, decision.state
        self._arm(decision.wake_ms)
        if decision.reason is not None:
            self.world.metrics.group_rebalances[kind].inc()
            log.info("rebalance", group=self.group_id, kind=kind, reason=decision.reason)
        for token, answer in decision.replies:
            future = self._waiting.pop(token, None)
            if future is not None:
                _settle(future, answer)

    # -- offsets -----------------------------------------------------------------------------

    async def _commit(self, batch: list[_Commit]) -> None:
        if any(each.committer.generation <= _GENERATION_UNKNOWN for each in batch):
            await self.hold()
        machine, state, env = self.world.machines[self.kind], self.state, self.env()
        wake_ms: int | None = None
        exists = self.exists
        merged: dict[Partition, CommittedOffset] = {}
        for each in batch:
            if not exists:
                each.code = _of_no_group(each.committer)
            else:
                admission: Admission[Any] = machine.admit_commit(state, each.committer, env)
                state, each.code, wake_ms = admission.state, admission.code, admission.wake_ms
            if each.code is ErrorCode.none:
                merged.update(each.offsets)
                exists = exists or bool(merged)
        if merged:
            await self.world.stored.save_offsets(await self.hold(), merged)
        self._check_still_ours()
        self.state, self.known = state, self.known or exists
        if wake_ms is not None:
            self._arm(wake_ms)
        self.offsets.update(merged)
        self.world.metrics.group_offset_commits.inc(len(merged))
        for each in batch:
            _settle(each.future, each.code)

    async def drop_offsets(self, partitions: list[Partition]) -> None:
        """Within an action: removes committed offsets."""
        if partitions and self.held is not None:
            await self.world.stored.save_offsets(self.held, dict.fromkeys(partitions))
            for partition in partitions:
                self.offsets.pop(partition, None)

    async def drop_all(self) -> None:
        """Within an action: removes an idle group whole."""
        if self.held is not None:
            await self.world.stored.delete(self.held, list(self.offsets))
            self._check_still_ours()
            self.held = None
        self._restore(Stored(None, {}))

    # -- timers ------------------------------------------------------------------------------

    def _arm(self, wake_ms: int | None) -> None:
        """Wakes at `wake_ms` at the latest. A heartbeat moves its deadline on; the timer stays and
        finds when it fires that there is nothing to do yet."""
        if self._timer is not None:
            if wake_ms is None or self._timer_ms <= wake_ms:
                return
            self._timer.cancel()
            self._timer = None
        if wake_ms is None:
            return
        delay_ms = max(0, wake_ms - self.world.clock_ms())
        self._timer_ms = wake_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._woken)

    def _woken(self) -> None:
        self._timer = None
        now_ms = self.world.clock_ms()
        if now_ms - self._timer_ms > LATE_MS:
            self._arm(now_ms + TICK_RETRY_MS)
        elif self._holder is None or self.world.closing:
            return
        elif not self._decided_at_once(Tick(), None):
            self._push(_Ask(Tick(), None))


def _of_no_group(committer: Committer) -> ErrorCode:
    """Whether a group is made for a commit: one without a generation comes from a consumer that
    manages its partitions itself."""
    if committer.generation <= _GENERATION_UNKNOWN:
        return ErrorCode.none
    if committer.api_version >= 9:
        return ErrorCode.group_id_not_found
    return ErrorCode.illegal_generation


def _settle(future: asyncio.Future[Any], result: object) -> None:
    """The client may be gone."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
        # Whoever asked may never look.
        future.exception()
    else:
        future.set_result(result)
