"""Random lives of a consumer group: members that join, leave, fall silent, come back, don't hear
answers; topics that come, grow and go; coordinators that fail over.

Each member is modelled as the client that it is: it owns what it was given until it has given it
up, and it believes itself out of the group only when it is told so, or when its session is over.
Whatever happens, no two members own a partition at once, and when all is quiet every partition
of every subscribed topic has one owner, evenly.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drayd.groups.consumer_events import BeatAnswer
from drayd.groups.machine import GroupSettings
from tests.drayd.groups.consumer_play import Play

SESSION_MS = 45_000
REVOKE_MS = 20_000
NAMES = ("t0", "t1", "t2")
Slot = tuple[UUID, int]


class Client:
    """A consumer, as far as the protocol goes."""

    def __init__(self, member_id: str, names: frozenset[str], instance_id: str | None) -> None:
        self.member_id = member_id
        self.names = names
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[Slot] = set()
        self.wanted: set[Slot] = set()
        """What it was last told to have."""
        self.heard_ms = 0
        self.news = True
        """Its next heartbeat has to say what it owns …"""
        self.unsure = False
        """… and everything else, because it didn't hear the last answer."""

    def settle(self) -> None:
        """Takes over what it was told: gives up first, then takes."""
        if self.owned != self.wanted:
            self.owned = set(self.wanted)
            self.news = True

    def lost(self) -> None:
        self.epoch, self.owned, self.wanted, self.news = 0, set(), set(), True


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.play = Play(GroupSettings(consumer_assignment_interval_ms=500), t0=4)
        self.clients: dict[str, Client] = {}
        self.made = 0
        self.highest: dict[str, int] = {}

    # -- what can happen -------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 5)
    @rule(names=st.frozensets(st.sampled_from(NAMES)), static=st.booleans())
    def start(self, names: frozenset[str], static: bool) -> None:
        self.made += 1
        client = Client(f"m{self.made}", names, f"i{self.made}" if static else None)
        self.clients[client.member_id] = client
        self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), heard=st.booleans(), settled=st.booleans())
    def heartbeat(self, data: st.DataObject, heard: bool, settled: bool) -> None:
        client = self.pick(data)
        if settled:
            client.settle()
        self.beat(client, heard=heard or not client.epoch)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.pick(data)
        del self.clients[client.member_id]
        if client.epoch:
            client.lost()
            self.play.beat(client.member_id, -1)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def bounce(self, data: st.DataObject) -> None:
        """A static member restarts, with another member id."""
        client = self.pick(data)
        if client.instance_id is None or not client.epoch:
            return
        client.lost()
        self.play.beat(client.member_id, -2, instance_id=client.instance_id)
        del self.clients[client.member_id]
        self.made += 1
        client.member_id = f"m{self.made}"
        self.clients[client.member_id] = client
        self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Gone without a word; whatever it owned isn't read by anybody."""
        del self.clients[self.pick(data).member_id]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), names=st.frozensets(st.sampled_from(NAMES)))
    def subscribe(self, data: st.DataObject, names: frozenset[str]) -> None:
        client = self.pick(data)
        client.names = names
        if client.epoch:
            self.beat(client, names=names)

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def grow(self, name: str, more: int) -> None:
        facts = self.play.topics.by_name(name)
        count = facts.partitions if facts else 0
        self.play.ids[name] = self.play.topics.put(name, count + more)

    @rule(name=st.sampled_from(NAMES))
    def drop(self, name: str) -> None:
        if self.play.topics.by_name(name) is not None:
            self.play.topics.drop(name)

    @rule(duration_ms=st.sampled_from([1, 400, 3_000, 15_000, 50_000]))
    def wait(self, duration_ms: int) -> None:
        self.play.pass_ms(duration_ms)
        for client in self.clients.values():
            if client.epoch and self.play.now_ms - client.heard_ms >= SESSION_MS:
                # A client knows as well as the coordinator when its session is over, and it is
                # out of time too if it didn't give up what it was told to.
                client.lost()
            elif client.member_id not in self.play.state.group.members:
                client.lost()

    @rule(away_ms=st.sampled_from([0, 100_000]))
    def fail_over(self, away_ms: int) -> None:
        self.play.fail_over(away_ms)

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def nobody_shares(self) -> None:
        owners = Counter(slot for client in self.clients.values() for slot in client.owned)
        assert all(count == 1 for count in owners.values()), owners

    def teardown(self) -> None:
        """All is quiet: the group settles, evenly, and then nothing moves any more."""
        # Long enough for a session to end first (a static member that forgot itself can't come
        # back before), and for what follows from that.
        for _ in range(30):
            self.play.pass_ms(5_000)
            for client in list(self.clients.values()):
                client.settle()
                self.beat(client)
        topics = self.play.topics
        expected = {
            (facts.topic_id, partition)
            for name in {name for client in self.clients.values() for name in client.names}
            if (facts := topics.by_name(name)) is not None
            for partition in range(facts.partitions)
        }
        owned = [slot for client in self.clients.values() for slot in client.owned]
        assert sorted(owned) == sorted(expected)
        if self.clients:
            assert self.play.state_name() == "Stable"
        for client in self.clients.values():
            for other in self.clients.values():
                could = {topics.by_id(topic) for topic, _ in client.owned}
                if any(facts is not None and facts.name in other.names for facts in could):
                    assert len(client.owned) <= len(other.owned) + 1
        writes = self.play.writes
        for client in self.clients.values():
            self.beat(client)
        assert self.play.writes == writes

    # -- clients ---------------------------------------------------------------------------------

    def pick(self, data: st.DataObject) -> Client:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    def beat(
        self, client: Client, *, names: frozenset[str] | None = None, heard: bool = True
    ) -> None:
        joins = client.epoch == 0
        if joins:
            answer = self.play.join(
                client.member_id,
                client.names,
                rebalance_timeout_ms=REVOKE_MS,
                instance_id=client.instance_id,
            )
        else:
            owned: dict[UUID, set[int]] | None = None
            if client.news:
                owned = {}
                for topic, partition in client.owned:
                    owned.setdefault(topic, set()).add(partition)
            answer = self.beat_with(client, names, owned)
        if not heard:
            client.news = client.unsure = True
            return
        client.heard_ms = self.play.now_ms
        if answer.error.name in ("unknown_member_id", "fenced_member_epoch"):
            client.lost()
            return
        if answer.error.name == "unreleased_instance_id":
            return
        assert answer.error.name == "none", answer
        client.news = client.unsure = False
        assert answer.member_epoch >= self.highest.get(client.member_id, 0)
        self.highest[client.member_id] = client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.wanted = {
                (topic, each) for topic, several in answer.assignment.items() for each in several
            }
            if not client.wanted and joins:
                client.news = True

    def beat_with(
        self,
        client: Client,
        names: frozenset[str] | None,
        owned: dict[UUID, set[int]] | None,
    ) -> BeatAnswer:
        by_id = None if owned is None else {t: frozenset(p) for t, p in owned.items()}
        return self.play.beat_owning(
            client.member_id,
            client.epoch,
            by_id,
            names=client.names if client.unsure else names,
            rebalance_timeout_ms=REVOKE_MS if client.unsure else -1,
            instance_id=client.instance_id,
        )


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
