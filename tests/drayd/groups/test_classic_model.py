"""Random lives of classic groups: joins, syncs, leaves, silence, restarts, failovers, in any order.

`Play` checks on every step that no request is answered twice, that the generation never decreases
and that the state's parts agree. Here, besides: when the members behave again, they all end up in
one generation with one leader; and every request is answered.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from drayd.groups.classic_events import Joined, Leaver, Protocols, Synced
from drayd.groups.classic_state import Status
from protocol.errors import ErrorCode
from tests.drayd.groups.classic_play import REBALANCE_MS, SESSION_MS, Play

CLIENTS = 5
PROTOCOLS: tuple[Protocols, ...] = (
    (("range", b"r"),),
    (("range", b"other"),),
    (("range", b"r"), ("sticky", b"s")),
    (("sticky", b"s"), ("range", b"r")),
)


class Client:
    """A consumer as clients are: it keeps its member id and does what the answers say."""

    def __init__(self, name: str, static: bool) -> None:
        self.name = name
        self.instance_id = name if static else None
        self.protocols = PROTOCOLS[2]
        self.times = 0
        self.reset()

    def reset(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.joining: int | None = None
        self.syncing: int | None = None
        self.assignment: bytes | None = None
        self.members: tuple[str, ...] = ()
        self.leads = False

    def take(self, play: Play) -> None:
        """Answers that came."""
        if self.joining in play.lost or self.syncing in play.lost:
            # The coordinator went away: join again, as the same member.
            self.joining = self.syncing = None
            self.generation = -1
        if self.joining is not None and self.joining in play.answers:
            joined = play.joined(self.joining)
            self.joining = None
            self._joined(joined)
        if self.syncing is not None and self.syncing in play.answers:
            synced = play.synced(self.syncing)
            self.syncing = None
            self._synced(synced)

    def _joined(self, joined: Joined) -> None:
        if joined.error is ErrorCode.none:
            self.member_id, self.generation = joined.member_id, joined.generation
            self.leads = joined.leader == joined.member_id and not joined.skip_assignment
            self.members = tuple(member.member_id for member in joined.members)
            assert not self.leads or self.member_id in self.members
            self.assignment = None
        elif joined.error is ErrorCode.member_id_required:
            self.member_id = joined.member_id
        else:
            self._failed(joined.error)

    def _synced(self, synced: Synced) -> None:
        if synced.error is ErrorCode.none:
            self.assignment = synced.assignment
        else:
            self._failed(synced.error)

    def _failed(self, error: ErrorCode) -> None:
        if error is ErrorCode.rebalance_in_progress:
            self.generation = -1
            self.assignment = None
        else:
            assert error in (
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_instance_id,
                ErrorCode.illegal_generation,
                ErrorCode.inconsistent_group_protocol,
                ErrorCode.group_max_size_reached,
            )
            self.reset()

    def step(self, play: Play) -> None:
        """What a consumer does next."""
        self.take(play)
        if self.joining is not None or self.syncing is not None:
            return
        if self.generation < 0:
            self.join(play)
        elif self.assignment is None:
            parts = tuple((name, name.encode()) for name in self.members) if self.leads else ()
            self.syncing = play.sync(
                self.member_id, self.generation, instance_id=self.instance_id, assignments=parts
            )
        else:
            error = play.beat(self.member_id, self.generation, self.instance_id)
            if error is not ErrorCode.none:
                self._failed(error)
        self.take(play)

    def join(self, play: Play) -> None:
        self.times += 1
        self.joining = play.join(
            self.member_id,
            new_member_id=f"{self.name}-{self.times}",
            instance_id=self.instance_id,
            protocols=self.protocols,
        )


class Lives(RuleBasedStateMachine):
    @initialize(
        static=st.lists(st.booleans(), min_size=CLIENTS, max_size=CLIENTS),
        delay_ms=st.sampled_from([0, 500, 3_000]),
        max_size=st.sampled_from([2, CLIENTS, 100]),
    )
    def begin(self, static: list[bool], delay_ms: int, max_size: int) -> None:
        self.play = Play(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.clients = [Client(f"c{at}", each) for at, each in enumerate(static)]

    who = st.integers(0, CLIENTS - 1)

    @rule(who=who)
    def goes_on(self, who: int) -> None:
        self.clients[who].step(self.play)

    @rule(times=st.integers(1, 3))
    def all_go_on(self, times: int) -> None:
        for _ in range(times):
            for client in self.clients:
                client.step(self.play)

    @rule(who=who)
    def joins_again(self, who: int) -> None:
        """Because it wants to, or because the answer to its last JoinGroup was lost."""
        client = self.clients[who]
        client.take(self.play)
        client.syncing = None
        client.join(self.play)

    @rule(who=who, protocols=st.sampled_from(PROTOCOLS))
    def changes(self, who: int, protocols: Protocols) -> None:
        self.clients[who].protocols = protocols
        self.joins_again(who)

    @rule(who=who)
    def crashes(self, who: int) -> None:
        """Silently; it comes back as somebody new, or under its instance id."""
        self.clients[who].reset()

    @rule(who=who)
    def leaves(self, who: int) -> None:
        client = self.clients[who]
        client.take(self.play)
        if client.member_id:
            self.play.leave(Leaver(client.member_id, client.instance_id))
        client.reset()

    @rule(who=who)
    def is_sent_away(self, who: int) -> None:
        self.play.leave(Leaver("", self.clients[who].name))

    @rule(who=who, generation=st.integers(-1, 4), name=st.sampled_from(["", "c0-1", "c1-2", "x"]))
    def nonsense(self, who: int, generation: int, name: str) -> None:
        self.play.sync(name, generation)
        self.play.beat(name, generation)
        self.play.beat(name, generation, self.clients[who].name)
        self.play.commit(generation, name)

    @rule(ms=st.sampled_from([1, 100, 500, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.play.pass_ms(ms)

    @rule()
    def fails_over(self) -> None:
        self.play.fail_over()

    @rule()
    def is_called_for_nothing(self) -> None:
        self.play.pass_ms(0)

    @invariant()
    def stored_agrees(self) -> None:
        if not hasattr(self, "play") or self.play.record is None:
            return
        assert self.play.record.generation == self.play.state.generation
        settled = {n for n, member in self.play.state.members.items() if not member.fresh}
        assert {member.member_id for member in self.play.record.members} == settled

    def teardown(self) -> None:
        if not hasattr(self, "play"):
            return
        self._quiesce()
        # Nobody waits for ever: when all are gone, and time is over, everything is answered.
        for _ in range(20):
            self.play.pass_ms(10 * REBALANCE_MS)
        assert self.play.phase() is Status.EMPTY
        assert not self.play.waiting()

    def _quiesce(self) -> None:
        """Members that behave agree, before long."""
        for client in self.clients:
            client.protocols = PROTOCOLS[0]
        for _ in range(3 * REBALANCE_MS // 1_000):
            for client in self.clients:
                client.step(self.play)
            self.play.pass_ms(1_000)
        for client in self.clients:
            client.take(self.play)
        state = self.play.state
        assert state.status is Status.STABLE, state
        inside = [client for client in self.clients if client.assignment is not None]
        expected = min(CLIENTS, self.play.settings.max_size)
        assert len(inside) == expected
        assert {client.generation for client in inside} == {state.generation}
        assert {client.member_id for client in inside} == set(state.members)
        assert state.leader in state.members
        for client in inside:
            assert client.assignment is not None


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
