"""The append plan against a simple model, and its rules one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.append import (
    KEPT_BATCHES,
    MAX_SEQUENCE,
    NO_PRODUCER,
    POINT_EVERY_BYTES,
    Accepted,
    Duplicate,
    Outcome,
    Plan,
    Refusal,
    Refused,
    StoredBatch,
    StoredObject,
    check_producer,
    last_sequence,
    plan_append,
)
from metadata.values import IndexEntry, Lifecycle, ProducerBatch, ProducerState, Run, StreamHead
from tests.metadata.stored import TOPIC, batch, stored

STREAMS = (1, 2, 3)
DELETED = 3
NOW_MS = 10_000
EXPIRATION_MS = 500


def plan(
    objects: list[StoredObject],
    heads: dict[int, StreamHead | None],
    producers: dict[tuple[int, int], ProducerState | None] | None = None,
    now_ms: int = NOW_MS,
) -> Plan:
    known = {
        (chunk.stream_id, item.producer_id): None
        for each in objects
        for chunk in each.chunks
        for item in chunk.batches
    }
    return plan_append(
        objects,
        heads,
        {**known, **(producers or {})},
        now_ms=now_ms,
        producer_expiration_ms=EXPIRATION_MS,
    )


# -- the model ---------------------------------------------------------------------------------


@dataclass
class ModelProducer:
    epoch: int
    next_sequence: int
    recent: list[tuple[int, int, int]] = field(default_factory=list)
    """First sequence, records, offset."""


class ModelLog:
    """A stream as a list of records, each with the batch that it came in."""

    def __init__(self, *, deleted: bool) -> None:
        self.deleted = deleted
        self.end = 0
        self.accepted: list[tuple[StoredObject, StoredBatch, int]] = []
        self.producers: dict[int, ModelProducer] = {}

    def append(self, item: StoredObject, each: StoredBatch) -> Outcome:
        if self.deleted:
            return Refused(Refusal.STREAM_GONE)
        refused = self._refused(each)
        if refused is not None:
            return refused
        base = self.end
        self.end += each.record_count
        self.accepted.append((item, each, base))
        return Accepted(base, 0)

    def _refused(self, each: StoredBatch) -> Outcome | None:
        if each.producer_id == NO_PRODUCER:
            return None
        known = self.producers.get(each.producer_id)
        if known is not None and each.producer_epoch < known.epoch:
            return Refused(Refusal.OLD_EPOCH)
        if known is not None and each.producer_epoch == known.epoch:
            for first, records, offset in known.recent[-5:]:
                if (first, records) == (each.base_sequence, each.record_count):
                    return Duplicate(offset, 0)
            if each.base_sequence != known.next_sequence:
                return Refused(Refusal.OUT_OF_ORDER)
        elif known is not None and each.base_sequence != 0:
            return Refused(Refusal.OUT_OF_ORDER)
        if known is None or known.epoch != each.producer_epoch:
            known = self.producers[each.producer_id] = ModelProducer(each.producer_epoch, 0)
        known.recent.append((each.base_sequence, each.record_count, self.end))
        known.next_sequence = (each.base_sequence + each.record_count) % 2**31
        return None


@st.composite
def batches(draw: st.DrawFn) -> StoredBatch:
    producer_id = draw(st.sampled_from([NO_PRODUCER, NO_PRODUCER, 1, 2]))
    producer = None
    if producer_id != NO_PRODUCER:
        # Few values, so that batches follow, repeat and miss one another; near the wrap too.
        sequence = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, MAX_SEQUENCE - 1, MAX_SEQUENCE]))
        producer = (producer_id, draw(st.sampled_from([0, 0, 0, 1])), sequence)
    low = draw(st.integers(-5, 1000))
    return batch(
        draw(st.integers(1, 3)),
        size=draw(st.sampled_from([61, 500, 40_000, 70_000])),
        producer=producer,
        times=(low, draw(st.integers(max(low, -1), 1000))),
    )


objects = st.lists(
    st.dictionaries(
        st.sampled_from(STREAMS), st.lists(batches(), min_size=1, max_size=8), max_size=3
    ).map(lambda chunks: stored("marker", chunks)),
    min_size=1,
    max_size=4,
)


@given(st.lists(objects, min_size=1, max_size=3))
def test_any_appends_do_what_the_model_does(commits: list[list[StoredObject]]) -> None:
    models = {n: ModelLog(deleted=n == DELETED) for n in STREAMS}
    heads: dict[int, StreamHead | None] = {
        n: StreamHead(TOPIC, n, state=Lifecycle.DELETING if n == DELETED else Lifecycle.ACTIVE)
        for n in STREAMS
    }
    producers: dict[tuple[int, int], ProducerState | None] = {}
    entries: dict[int, list[tuple[StoredObject, IndexEntry]]] = {n: [] for n in STREAMS}
    for commit in commits:
        made = plan(commit, heads, producers)
        assert len(made.objects) == len(commit)
        for item, appended in zip(commit, made.objects, strict=True):
            assert appended.outcomes == [
                [models[chunk.stream_id].append(item, each) for each in chunk.batches]
                for chunk in item.chunks
            ]
            for stream_id, entry in appended.entries:
                entries[stream_id].append((item, entry))
        heads.update(made.heads)
        producers.update(made.producers)
    for stream_id, model in models.items():
        check_stream(model, heads[stream_id], entries[stream_id])
    for (stream_id, producer_id), state in producers.items():
        model_producer = models[stream_id].producers[producer_id]
        assert state is not None
        assert state.epoch == model_producer.epoch
        assert [
            (kept.base_sequence, kept.last_sequence, kept.base_offset) for kept in state.batches
        ] == [
            (first, (first + records - 1) % 2**31, offset)
            for first, records, offset in model_producer.recent[-KEPT_BATCHES:]
        ]


def check_stream(
    model: ModelLog, head: StreamHead | None, entries: list[tuple[StoredObject, IndexEntry]]
) -> None:
    assert head is not None
    end = total = 0
    newest = -1
    for item, entry in entries:
        own = [(each, base) for source, each, base in model.accepted if source is item]
        assert entry.start_offset == end and entry.path == item.path
        assert entry.wal_id == item.wal_id
        end = entry.end_offset
        size = sum(each.length - 4 for each, _ in own)
        total += size
        newest = max(newest, *(each.max_timestamp_ms for each, _ in own))
        assert (entry.size_bytes, entry.end_bytes) == (size, total)
        assert entry.running_max_timestamp_ms == newest
        assert entry.min_timestamp_ms == min(each.min_timestamp_ms for each, _ in own)
        assert entry.max_timestamp_ms == max(each.max_timestamp_ms for each, _ in own)
        check_runs(entry, own)
        check_points(entry, own)
    assert (head.log_end, head.total_bytes, head.max_timestamp_ms) == (end, total, newest)
    assert end == model.end
    if newest >= 0:
        first = next(b for _, each, b in model.accepted if each.max_timestamp_ms == newest)
        assert head.max_timestamp_offset == first


def check_runs(entry: IndexEntry, own: list[tuple[StoredBatch, int]]) -> None:
    """Runs cover exactly the accepted batches, are as long as can be, and ascend."""
    covered = []
    for run in entry.runs:
        position, offset = run.position, run.start_offset
        inside = [(each, base) for each, base in own if position <= each.position]
        for each, base in inside:
            if each.position != position or position >= run.position + run.length:
                break
            assert base == offset
            covered.append(each)
            position += each.length
            offset += each.record_count
        assert position == run.position + run.length
    assert covered == [each for each, _ in own]
    for before, after in zip(entry.runs, entry.runs[1:], strict=False):
        assert before.position + before.length < after.position


def check_points(entry: IndexEntry, own: list[tuple[StoredBatch, int]]) -> None:
    """Every point begins a batch, every run begins with one, and none is far from the next."""
    begins = {each.position: base for each, base in own}
    points = [(point.position, point.base_offset) for point in entry.points]
    assert points == sorted(points)
    assert all(begins[position] == base for position, base in points)
    for run in entry.runs:
        inside = [p for p, _ in points if run.position <= p < run.position + run.length]
        assert inside[0] == run.position
        largest = max(each.length for each, _ in own)
        ends = [*inside[1:], run.position + run.length]
        for point, following in zip(inside, ends, strict=True):
            assert following - point < POINT_EVERY_BYTES + largest
        assert len(inside) <= 1 + run.length // POINT_EVERY_BYTES


# -- rules one by one --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "records", "last"),
    [
        (0, 1, 0),
        (5, 3, 7),
        (MAX_SEQUENCE, 1, MAX_SEQUENCE),
        (MAX_SEQUENCE, 2, 0),
        (MAX_SEQUENCE - 1, 5, 2),
    ],
)
def test_sequences_wrap(base: int, records: int, last: int) -> None:
    assert last_sequence(base, records) == last


def state_after(*batches: tuple[int, int], epoch: int = 0) -> ProducerState:
    return ProducerState(
        epoch, tuple(ProducerBatch(first, last, 100 + first) for first, last in batches), NOW_MS
    )


@pytest.mark.parametrize(
    ("producer", "records", "state", "verdict"),
    [
        ((1, 0, 40), 1, None, None),
        ((1, 0, 3), 1, state_after((0, 2)), None),
        ((1, 0, 0), 3, state_after((0, 2)), 100),
        ((1, 0, 0), 2, state_after((0, 2)), Refusal.OUT_OF_ORDER),
        ((1, 0, 4), 1, state_after((0, 2)), Refusal.OUT_OF_ORDER),
        ((1, 0, 0), 1, state_after((MAX_SEQUENCE, MAX_SEQUENCE)), None),
        ((1, 0, 1), 1, state_after((MAX_SEQUENCE, 0)), None),
        ((1, 1, 0), 1, state_after((0, 2)), None),
        ((1, 1, 3), 1, state_after((0, 2)), Refusal.OUT_OF_ORDER),
        ((1, 1, 0), 3, state_after((0, 2)), None),
        ((1, 0, 3), 1, state_after((0, 2), epoch=1), Refusal.OLD_EPOCH),
        ((1, 0, 0), 3, state_after((0, 2), epoch=1), Refusal.OLD_EPOCH),
    ],
)
def test_a_producers_batch_is_judged_as_kafka_does(
    producer: tuple[int, int, int],
    records: int,
    state: ProducerState | None,
    verdict: Refusal | int | None,
) -> None:
    assert check_producer(batch(records, producer=producer), state) == verdict


def test_duplicates_are_known_for_the_last_five_batches() -> None:
    item = stored("m", {1: [batch(producer=(7, 0, n)) for n in range(6)]})
    first = plan([item], {1: StreamHead(TOPIC, 0)})
    again = plan([item], dict(first.heads), dict(first.producers))
    assert again.objects[0].outcomes == [
        [Refused(Refusal.OUT_OF_ORDER), *(Duplicate(n, 0) for n in range(1, 6))]
    ]
    assert again.heads == {} and again.producers == {} and again.objects[0].entries == []


def test_a_gap_in_an_object_refuses_what_follows_and_splits_the_run() -> None:
    chunk = [
        batch(producer=(7, 0, 0)),
        batch(producer=(7, 0, 2)),
        batch(producer=(7, 0, 1)),
        batch(producer=(7, 0, 2)),
    ]
    item = stored("m", {1: chunk})
    made = plan([item], {1: StreamHead(TOPIC, 0)})
    assert made.objects[0].outcomes == [
        [Accepted(0, 0), Refused(Refusal.OUT_OF_ORDER), Accepted(1, 0), Accepted(2, 0)]
    ]
    ((_, entry),) = made.objects[0].entries
    first = item.chunks[0].batches[0].position
    assert entry.runs == (Run(first, 104, 0), Run(first + 208, 208, 1))


def test_a_producer_expires_when_it_was_silent_for_longer_than_the_limit() -> None:
    chunk = {1: [batch(producer=(7, 0, 50))]}
    known = {(1, 7): state_after((0, 2))}
    just = plan([stored("m", chunk)], {1: StreamHead(TOPIC, 0)}, dict(known), NOW_MS + 500)
    assert just.objects[0].outcomes == [[Refused(Refusal.OUT_OF_ORDER)]]
    late = plan([stored("m", chunk)], {1: StreamHead(TOPIC, 0)}, dict(known), NOW_MS + 501)
    assert late.objects[0].outcomes == [[Accepted(0, 0)]]
    assert late.producers[1, 7].batches == (ProducerBatch(50, 50, 0),)


def test_the_time_of_appends_never_goes_back() -> None:
    head = StreamHead(TOPIC, 0, append_ms=NOW_MS + 77)
    made = plan([stored("m", {1: [batch()]})], {1: head})
    assert made.heads[1].append_ms == NOW_MS + 77
    assert made.objects[0].entries[0][1].append_ms == NOW_MS + 77


def test_what_the_append_does_not_concern_stays_in_the_head() -> None:
    head = StreamHead(TOPIC, 4, 10, 20, 1000, 400, 999, 12, 1, 6)
    made = plan([stored("m", {1: [batch(5, times=(1, 2))]})], {1: head})
    assert made.heads[1] == StreamHead(TOPIC, 4, 10, 25, 1100, 400, 999, 12, NOW_MS, 6)
    assert made.objects[0].outcomes == [[Accepted(20, 10)]]


def test_the_offset_of_the_largest_timestamp_is_that_of_its_first_batch() -> None:
    times = [(1, 5), (1, 9), (1, 9), (1, 3)]
    chunk = [batch(2, times=each) for each in times]
    made = plan([stored("m", {1: chunk})], {1: StreamHead(TOPIC, 0)})
    assert (made.heads[1].max_timestamp_ms, made.heads[1].max_timestamp_offset) == (9, 2)


def test_a_stream_that_is_missing_or_deleted_takes_nothing() -> None:
    deleted = StreamHead(TOPIC, 0, state=Lifecycle.DELETING)
    item = stored("m", {1: [batch(), batch()], 2: [batch()]})
    made = plan([item], {1: deleted, 2: None})
    gone = Refused(Refusal.STREAM_GONE)
    assert made.objects[0].outcomes == [[gone, gone], [gone]]
    assert made.objects[0].entries == [] and made.heads == {}


def test_an_object_without_chunks_has_no_outcomes() -> None:
    empty = StoredObject(uuid4(), "path", 53, "m", [])
    assert plan([empty], {}).objects[0].outcomes == []
