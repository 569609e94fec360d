"""The coordinator of consumer groups: which groups this broker runs, and what goes on behind them.

A group is run by the broker that holds its lease (`metadata.groups`); the others answer
NOT_COORDINATOR, and FindCoordinator names the holder. A group that nobody runs is taken by the
first broker that is asked for it, which FindCoordinator chooses the same way everywhere; groups
that exist are also taken without being asked, since their members' sessions have to end some time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from drayd.coordinator_group import LiveGroup, World
from drayd.groups import classic, consumer
from drayd.groups.machine import Committer, GroupSettings, Kind, Machine, Request, TopicsView
from drayd.groups.offsets import expired
from drayd.logs import Logger
from drayd.membership import Membership
from drayd.metrics import Metrics
from metadata.group_values import CommittedOffset
from metadata.groups import Groups, Partition
from metadata.store import StoreError
from metadata.values import Broker
from protocol.errors import ErrorCode, KafkaError

log = Logger(__name__)

T = TypeVar("T")

MACHINES: Mapping[Kind, Machine] = {Kind.CLASSIC: classic, Kind.CONSUMER: consumer}

ADOPT_INTERVAL_S = 5.0
ADOPTED_AT_ONCE = 16


class Policy(NamedTuple):
    retention_ms: int
    check_interval_ms: int


class Coordinator:
    def __init__(
        self,
        stored: Groups,
        membership: Membership,
        topics: TopicsView,
        topic_exists: Callable[[UUID], Awaitable[bool]],
        settings_of: Callable[[str], GroupSettings],
        metrics: Metrics,
        policy: Policy,
        *,
        clock_ms: Callable[[], int],
        now_ms: Callable[[], int],
        machines: Mapping[Kind, Machine] = MACHINES,
    ) -> None:
        self._stored = stored
        self._membership = membership
        self._topics = topics
        self._topic_exists = topic_exists
        self._policy = policy
        self._now_ms = now_ms
        self._groups: dict[str, LiveGroup] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._adopted = False
        self._world = World(
            stored=stored,
            membership=membership,
            machines=machines,
            topics=topics,
            settings_of=settings_of,
            metrics=metrics,
            clock_ms=clock_ms,
            spawn=self._spawn,
            forget=self._forget,
        )

    # -- what handlers ask -------------------------------------------------------------------

    def ask(self, group_id: str, request: Request) -> asyncio.Future[Any]:
        """The reply of the group's state machine; it may take as long as a rebalance. The future
        ends with a KafkaError if this broker can't answer: NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE. Order: a group does what it is asked in the order of calls."""
        return self._live(group_id).ask(request)

    def commit(
        self, group_id: str, committer: Committer, offsets: Mapping[Partition, CommittedOffset]
    ) -> asyncio.Future[ErrorCode]:
        """Stores offsets if the committer may; errors as of `ask`."""
        return self._live(group_id).commit(committer, offsets)

    async def look(self, group_id: str, read: Callable[[LiveGroup], T]) -> T:
        """What `read` makes of the group (which may not exist: see `LiveGroup.exists`), after
        all that was asked before. KafkaError as of `ask`."""
        return await self._live(group_id).look(read)

    async def delete_offsets(
        self, group_id: str, choose: Callable[[LiveGroup], Sequence[Partition]]
    ) -> None:
        """Removes the offsets that `choose` names; it may raise a KafkaError instead."""

        async def action(group: LiveGroup) -> None:
            await group.drop_offsets(list(choose(group)))

        await self._live(group_id).do(action)

    async def delete(self, group_id: str) -> None:
        """Removes a group with its offsets; KafkaError if it has members or doesn't exist."""

        async def action(group: LiveGroup) -> None:
            if not group.exists:
                raise KafkaError(ErrorCode.group_id_not_found)
            if not group.summary().idle:
                raise KafkaError(ErrorCode.non_empty_group)
            await group.drop_all()
            log.info("group deleted", group=group_id)

        await self._live(group_id).do(action)

    async def groups(self) -> list[LiveGroup]:
        """The groups that this broker runs. KafkaError(COORDINATOR_LOAD_IN_PROGRESS) at first."""
        if not self._adopted or self._membership.holder is None:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        found = []
        for group in list(self._groups.values()):
            try:
                if await group.look(lambda seen: seen.exists):
                    found.append(group)
            except KafkaError:
                continue
        return sorted(found, key=lambda group: group.group_id)

    async def find(self, group_id: str) -> Broker:
        """The broker to send a group's requests to. KafkaError(COORDINATOR_NOT_AVAILABLE)."""
        try:
            brokers = {each.broker_id: each for each in await self._stored.brokers()}
            lease = await self._stored.lease(group_id)
        except StoreError as error:
            raise KafkaError(ErrorCode.coordinator_not_available, str(error)) from error
        if lease is not None:
            holder = brokers.get(lease.broker_id)
            if holder is not None and holder.registration == lease.registration:
                return holder
        if not brokers:
            raise KafkaError(ErrorCode.coordinator_not_available)
        return brokers[candidate(group_id, list(brokers))]

    def count(self) -> Counter[tuple[str, str]]:
        """How many groups of each kind are in each state, for the metrics."""
        found: Counter[tuple[str, str]] = Counter()
        for group in self._groups.values():
            if group.loaded and group.exists:
                found[group.kind, group.summary().state] += 1
        return found

    def _live(self, group_id: str) -> LiveGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = LiveGroup(group_id, self._world)
        return group

    def _forget(self, group: LiveGroup) -> None:
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    # -- in the background -------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self) -> None:
        """Takes groups that nobody runs, and forgets offsets that have expired; runs until
        cancelled."""
        swept_ms = self._world.clock_ms()
        while True:
            try:
                await self.adopt()
                self._adopted = True
                if self._world.clock_ms() - swept_ms >= self._policy.check_interval_ms:
                    swept_ms = self._world.clock_ms()
                    await self.sweep()
            except StoreError as error:
                log.warning("the groups can't be looked through", error=str(error))
            interval_s = min(ADOPT_INTERVAL_S, self._policy.check_interval_ms / 1000)
            await asyncio.sleep(interval_s if self._adopted else 0.2)

    async def adopt(self) -> None:
        """Loads the groups that this broker should run and doesn't."""
        me = self._membership.holder
        if me is None:
            return
        brokers = {each.broker_id: each.registration for each in await self._stored.brokers()}
        names = [name for name in await self._stored.names() if not self._runs(name)]
        for at in range(0, len(names), ADOPTED_AT_ONCE):
            some = names[at : at + ADOPTED_AT_ONCE]
            await asyncio.gather(*(self._adopt(name, brokers) for name in some))

    def _runs(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        return group is not None and (group.loaded or group.busy)

    async def _adopt(self, group_id: str, brokers: Mapping[int, str]) -> None:
        lease = await self._stored.lease(group_id)
        if lease is None:
            return
        if lease.broker_id != self._membership.broker_id:
            if brokers.get(lease.broker_id) == lease.registration:
                return
            if candidate(group_id, list(brokers)) != self._membership.broker_id:
                return
        try:
            await self.look(group_id, lambda group: None)
        except KafkaError as error:
            log.debug("a group isn't taken", group=group_id, error=str(error))

    async def sweep(self) -> None:
        """Forgets what has expired: offsets, offsets of topics that are gone, empty groups."""
        for group in list(self._groups.values()):
            if not group.loaded:
                continue
            try:
                await group.do(self._clean)
            except KafkaError as error:
                log.debug("a group isn't swept", group=group.group_id, error=str(error))

    async def _clean(self, group: LiveGroup) -> None:
        if not group.exists:
            return
        names: dict[UUID, str] = {}
        for topic_id in {each[0] for each in group.offsets}:
            topic = self._topics.by_id(topic_id)
            if topic is not None:
                names[topic_id] = topic.name
            elif not await self._topic_exists(topic_id):
                await group.drop_offsets([each for each in group.offsets if each[0] == topic_id])
        summary = group.summary()
        old = expired(
            group.offsets,
            kind=group.kind,
            summary=summary,
            written_ms=group.written_ms,
            topic_names=names,
            now_ms=self._now_ms(),
            retention_ms=self._policy.retention_ms,
        )
        if len(old) == len(group.offsets) and summary.idle:
            await group.drop_all()
            log.info("group expired", group=group.group_id)
        elif old:
            await group.drop_offsets(old)
            log.info("offsets expired", group=group.group_id, partitions=len(old))

    def topic_deleted(self, topic_id: UUID) -> None:
        """Forgets the offsets of a topic that is gone, in every group that this broker runs.
        Those of commits that were on their way have an id that nobody asks for; `sweep` finds
        them."""
        if any(each[0] == topic_id for group in self._groups.values() for each in group.offsets):
            self._spawn(self._drop_topic(topic_id))

    async def _drop_topic(self, topic_id: UUID) -> None:

        async def action(group: LiveGroup) -> None:
            await group.drop_offsets([each for each in group.offsets if each[0] == topic_id])

        for group in list(self._groups.values()):
            if not any(each[0] == topic_id for each in group.offsets):
                continue
            try:
                await group.do(action)
            except KafkaError as error:
                log.debug("a topic's offsets stay", group=group.group_id, error=str(error))

    async def close(self) -> None:
        """Tells everybody who waits to look for another coordinator, and ends what is under way."""
        self._world.closing = True
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        for group in list(self._groups.values()):
            group.unload(ErrorCode.not_coordinator)
        self._groups.clear()


def candidate(group_id: str, broker_ids: Sequence[int]) -> int:
    """The broker that takes a group that nobody runs: the same for whoever asks, and few groups
    move when a broker comes or goes (rendezvous hashing)."""

    def weight(broker_id: int) -> bytes:
        return blake2b(f"{broker_id}/{group_id}".encode(), digest_size=8).digest()

    return max(sorted(broker_ids), key=weight)
