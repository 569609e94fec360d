"""Incremental fetch sessions as KIP-227 has them."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from drayd.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    MIN_EVICTION_MS,
    Context,
    FetchSessions,
    PartitionKey,
    Position,
    State,
)
from protocol.errors import ErrorCode, KafkaError

Wanted = list[tuple[PartitionKey, Position]]
NOTHING_NEW = State(10, 0, has_records=False, has_error=False)


def key(partition: int, topic: str = "t") -> PartitionKey:
    return PartitionKey(topic, None, partition)


def at(offset: int, max_bytes: int = 100) -> Position:
    return Position(offset, max_bytes, -1, -1)


def wanted(*partitions: int, offset: int = 0) -> Wanted:
    return [(key(partition), at(offset)) for partition in partitions]


class Client:
    """One client and its session, as a consumer keeps it."""

    def __init__(self, sessions: FetchSessions) -> None:
        self.sessions = sessions
        self.session_id = 0
        self.epoch = INITIAL_EPOCH

    def fetch(
        self,
        asked: Wanted,
        forgotten: list[PartitionKey] | None = None,
        *,
        by_id: bool = False,
        now_ms: int = 0,
    ) -> Context:
        context = self.sessions.context(
            self.session_id, self.epoch, asked, forgotten or [], by_id=by_id, now_ms=now_ms
        )
        if context.session_id:
            self.session_id = context.session_id
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        else:
            self.session_id, self.epoch = 0, INITIAL_EPOCH
        return context


def answered(context: Context, states: dict[PartitionKey, State]) -> list[int]:
    """The partitions that are in the answer."""
    if context.session is None:
        return [asked.partition for asked, _ in context.wanted]
    return [
        asked.partition
        for asked, _ in context.wanted
        if context.session.answer(asked, states.get(asked, NOTHING_NEW), full=context.full)
    ]


def refused(client: Client, asked: Wanted, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        client.fetch(asked, by_id=by_id)
    return raised.value.code


def test_a_full_fetch_opens_a_session_and_is_answered_in_full() -> None:
    client = Client(FetchSessions(10))
    context = client.fetch(wanted(0, 1, 2))
    assert context.full and context.session_id > 0
    assert answered(context, {}) == [0, 1, 2]


def test_later_only_what_has_changed_is_said() -> None:
    client = Client(FetchSessions(10))
    answered(client.fetch(wanted(0, 1, 2, 3)), {})
    context = client.fetch([])
    assert [asked.partition for asked, _ in context.wanted] == [0, 1, 2, 3]
    states = {
        key(1): State(11, 0, has_records=False, has_error=False),
        key(2): State(10, 5, has_records=False, has_error=False),
        key(3): State(10, 0, has_records=True, has_error=False),
    }
    assert answered(context, states) == [1, 2, 3]
    same = {**states, key(3): NOTHING_NEW}
    assert answered(client.fetch([]), same) == []


def test_positions_are_kept_updated_added_and_forgotten() -> None:
    client = Client(FetchSessions(10))
    client.fetch(wanted(0, 1, 2))
    context = client.fetch([(key(1), at(50, 7)), (key(9), at(4))], [key(0), key(77)])
    assert context.wanted == [(key(1), at(50, 7)), (key(2), at(0)), (key(9), at(4))]
    # A partition that is new to the session is said, whatever there is to say.
    assert answered(context, {}) == [1, 2, 9]
    assert answered(client.fetch([]), {}) == []


def test_added_and_forgotten_in_one_request_is_forgotten() -> None:
    client = Client(FetchSessions(10))
    client.fetch(wanted(0))
    assert client.fetch(wanted(1), [key(1)]).wanted == wanted(0)


def test_an_error_is_said_and_so_is_its_end() -> None:
    client = Client(FetchSessions(10))
    answered(client.fetch(wanted(0)), {})
    failed = {key(0): State(-1, -1, has_records=False, has_error=True)}
    assert answered(client.fetch([]), failed) == [0]
    assert answered(client.fetch([]), failed) == [0]
    assert answered(client.fetch([]), {}) == [0]
    assert answered(client.fetch([]), {}) == []


def test_partitions_with_records_go_to_the_end_of_the_line() -> None:
    client = Client(FetchSessions(10))
    context = client.fetch(wanted(0, 1, 2))
    records = State(20, 0, has_records=True, has_error=False)
    # The order of a full fetch is the client's.
    answered(context, {key(0): records})
    context = client.fetch([])
    assert [asked.partition for asked, _ in context.wanted] == [0, 1, 2]
    answered(context, {key(0): records, key(1): NOTHING_NEW})
    assert [asked.partition for asked, _ in client.fetch([]).wanted] == [1, 2, 0]


@pytest.mark.parametrize("epoch", [1, 3, MAX_EPOCH, -2])
def test_an_epoch_that_does_not_follow_is_refused(epoch: int) -> None:
    client = Client(FetchSessions(10))
    client.fetch(wanted(0))
    client.fetch([])
    client.epoch = epoch
    assert refused(client, []) is ErrorCode.invalid_fetch_session_epoch
    client.epoch = 2
    assert client.fetch([]).session is not None


def test_a_session_that_nobody_knows_is_refused() -> None:
    client = Client(FetchSessions(10))
    client.session_id, client.epoch = 42, 1
    assert refused(client, []) is ErrorCode.fetch_session_id_not_found


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    client = Client(FetchSessions(10))
    client.fetch([(PartitionKey(None, UUID(int=1), 0), at(0))], by_id=True)
    assert refused(client, []) is ErrorCode.fetch_session_topic_id_error
    client.epoch = 1
    assert client.fetch([], by_id=True).session is not None


def test_the_epoch_wraps_to_one() -> None:
    client = Client(FetchSessions(10))
    context = client.fetch(wanted(0))
    assert context.session is not None
    context.session.epoch = client.epoch = MAX_EPOCH
    client.fetch([])
    assert client.epoch == 1
    assert client.fetch([]).session is context.session


def test_the_final_epoch_ends_the_session_and_reads_once_more() -> None:
    sessions = FetchSessions(10)
    client = Client(sessions)
    client.fetch(wanted(0))
    client.epoch = FINAL_EPOCH
    context = client.fetch(wanted(3))
    assert context == Context(None, wanted(3), True) and context.session_id == 0
    assert len(sessions) == 0


def test_a_new_full_fetch_replaces_the_session() -> None:
    sessions = FetchSessions(10)
    client = Client(sessions)
    old = client.fetch(wanted(0)).session_id
    client.epoch = INITIAL_EPOCH
    new = client.fetch(wanted(1))
    assert new.session_id not in (0, old) and len(sessions) == 1
    assert new.wanted == wanted(1)


def test_a_session_that_has_lost_its_partitions_ends() -> None:
    sessions = FetchSessions(10)
    client = Client(sessions)
    client.fetch(wanted(0))
    context = client.fetch([], [key(0)])
    assert context == Context(None, [], True)
    assert len(sessions) == 0


def test_a_session_may_begin_without_partitions() -> None:
    sessions = FetchSessions(10)
    client = Client(sessions)
    assert client.fetch([]).session_id != 0
    assert client.fetch(wanted(0)).wanted == wanted(0)
    assert len(sessions) == 1


def test_sessions_in_use_are_not_pushed_out_and_old_ones_are() -> None:
    sessions = FetchSessions(2)
    first, second, third = (Client(sessions) for _ in range(3))
    first.fetch(wanted(0), now_ms=0)
    second.fetch(wanted(0), now_ms=1)
    first.fetch([], now_ms=1000)
    assert third.fetch(wanted(0), now_ms=1 + MIN_EVICTION_MS).session is None
    assert third.fetch(wanted(0), now_ms=2 + MIN_EVICTION_MS).session is not None
    assert first.fetch([], now_ms=2 + MIN_EVICTION_MS).session is not None
    assert refused(second, []) is ErrorCode.fetch_session_id_not_found
    assert len(sessions) == 2


def test_without_slots_there_are_no_sessions() -> None:
    context = Client(FetchSessions(0)).fetch(wanted(0, 1))
    assert context == Context(None, wanted(0, 1), True)


def test_an_id_is_not_given_to_two() -> None:
    ids = iter([5, 5, 5, 6])
    sessions = FetchSessions(10, lambda: next(ids))
    assert Client(sessions).fetch(wanted(0)).session_id == 5
    assert Client(sessions).fetch(wanted(0)).session_id == 6


class SessionMachine(RuleBasedStateMachine):
    """A client that folds what it is told into its own picture must always be right."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client(FetchSessions(10))
        self.log = {key(n): State(0, 0, has_records=False, has_error=False) for n in range(4)}
        self.asked: dict[PartitionKey, Position] = {}
        self.known: dict[PartitionKey, State] = {}
        self.offsets = count()

    @rule(partition=st.integers(0, 3), grow=st.integers(0, 2), trim=st.integers(0, 1))
    def change(self, partition: int, grow: int, trim: int) -> None:
        state = self.log[key(partition)]
        self.log[key(partition)] = state._replace(
            high_watermark=state.high_watermark + grow, log_start=state.log_start + trim
        )

    @rule(partition=st.integers(0, 3), error=st.booleans())
    def fail(self, partition: int, error: bool) -> None:
        self.log[key(partition)] = self.log[key(partition)]._replace(has_error=error)

    @rule(ask=st.sets(st.integers(0, 3)), forget=st.sets(st.integers(0, 3)), full=st.booleans())
    def fetch(self, ask: set[int], forget: set[int], full: bool) -> None:
        if full:
            self.client.epoch = INITIAL_EPOCH
        new = {key(n): at(next(self.offsets)) for n in ask}
        gone = [key(n) for n in forget - ask]
        if self.client.epoch == INITIAL_EPOCH:
            self.asked, self.known = new, {}
        else:
            self.asked = {k: p for k, p in {**self.asked, **new}.items() if k not in gone}
        context = self.client.fetch(list(new.items()), gone)
        assert dict(context.wanted) == self.asked
        for asked, _ in context.wanted:
            state = self.log[asked]
            if context.session is None or context.session.answer(asked, state, full=context.full):
                self.known[asked] = state
        for asked in self.asked:
            assert self.known[asked] == self.log[asked]


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_larger_session_pushes_out_a_smaller_one_that_is_old_enough() -> None:
    sessions = FetchSessions(2, new_id=count(1).__next__)
    small, large = Client(sessions), Client(sessions)
    small.fetch(wanted(0), now_ms=0)
    large.fetch(wanted(0, 1, 2), now_ms=0)
    old_ms = MIN_EVICTION_MS + 1
    # Used just now, both of them, but only the small one was seen to be old.
    small.fetch([], now_ms=old_ms)
    large.fetch([], now_ms=MIN_EVICTION_MS)
    assert Client(sessions).fetch(wanted(0), now_ms=old_ms).session is None
    newcomer = Client(sessions).fetch(wanted(0, 1), now_ms=old_ms)
    assert newcomer.session is not None
    with pytest.raises(KafkaError) as gone:
        small.fetch([], now_ms=old_ms)
    assert gone.value.code is ErrorCode.fetch_session_id_not_found
    assert large.fetch([], now_ms=old_ms).session is not None
    # The newcomer is young, and the large one isn't smaller.
    assert Client(sessions).fetch(wanted(0, 1, 2), now_ms=old_ms).session is None
