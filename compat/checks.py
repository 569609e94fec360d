"""What every client is made to do, one named check after the other.

A check passes, fails with one sentence, or isn't offered by the client, which says why. Where a
client lacks what a check only needs on the way (kcat creates no topics), librdkafka stands in.
Later checks read the topics that earlier ones wrote.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from compat import records
from compat.clients.job import Record
from compat.program import JobFailed, Program

SETTLE_S = 10.0
POLL_S = 0.1
MAX_REQUEST_BYTES = 1_000_000
COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")
TOO_LARGE = re.compile(r"too.?large|larger than|size.?too|MESSAGE_TOO_LARGE", re.IGNORECASE)


class Failed(Exception):
    """What is wrong, in one sentence."""


class NotOffered(Exception):
    """The client can't; why."""


class Client:
    """A client program and what it said about itself."""

    def __init__(self, program: Program) -> None:
        self.name = program.name
        self.program = program
        about = program.ask("about")
        self.version: str = about["version"]
        self.compressions: list[str] = about["compressions"]
        self.cannot: dict[str, str] = about.get("cannot", {})
        self.timestamps: bool = about.get("timestamps", True)
        self.create_configs: bool = about.get("create_configs", True)
        self.can = records.Abilities(
            null_headers=about.get("null_headers", True),
            repeated_headers=about.get("repeated_headers", True),
            empty=about.get("empty", True),
            bytes=about.get("bytes", True),
        )


@dataclass(slots=True)
class Session:
    """One client against one server, and what it has written so far."""

    bootstrap: str
    client: Client
    stand_in: Client
    reader: Client
    written: dict[str, tuple[str, list[Record]]] = field(default_factory=dict)

    def ask(self, do: str, **case: Any) -> Any:
        """The client's answer."""
        return self.client.program.ask(do, self.bootstrap, **case)

    def able(self, check: str) -> Program:
        """The client, or who stands in for it."""
        who = self.stand_in if check in self.client.cannot else self.client
        return who.program

    def topic(self, name: str) -> str:
        """A topic of this client's own."""
        return f"{self.client.name}.{name}"

    def create(self, topic: str, configs: dict[str, str]) -> None:
        """A topic, made by the client if it can."""
        with_configs = configs if self.client.create_configs else {}
        self.able("create").ask(
            "create",
            self.bootstrap,
            topic=topic,
            partitions=records.PARTITIONS,
            configs=with_configs,
        )
        if configs != with_configs:
            self.able("alter configs").ask(
                "alter_configs", self.bootstrap, topic=topic, configs=configs
            )
        # Kafka's brokers lead a new partition a moment later; until then a client that is not
        # idempotent may retry, and reorder, what it sends.
        deadline = time.monotonic() + SETTLE_S
        while not self._is_led(topic):
            if time.monotonic() > deadline:
                raise Failed(f"{topic} was created but is not there after {SETTLE_S:.0f} s")
            time.sleep(POLL_S)

    def _is_led(self, topic: str) -> bool:
        try:
            for partition in range(records.PARTITIONS):
                self.stand_in.program.ask(
                    "offsets", self.bootstrap, topic=topic, partition=partition, timestamp=1
                )
        except JobFailed:
            return False
        return True

    def configs(self, topic: str) -> dict[str, str | None]:
        """Every config of a topic."""
        found: dict[str, str | None] = self.able("describe configs").ask(
            "describe_configs", self.bootstrap, topic=topic
        )
        return found

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        found = self.able("describe topic").ask("describe", self.bootstrap, topic=topic)
        return found and int(found["partitions"])

    def offsets(self, topic: str, partition: int, timestamp: int) -> dict[str, int]:
        """The earliest, the latest, and the one of a time."""
        found: dict[str, int] = self.able("offsets by time").ask(
            "offsets", self.bootstrap, topic=topic, partition=partition, timestamp=timestamp
        )
        return found


def run(session: Session) -> dict[str, tuple[str, str]]:
    """Each check's outcome (a mark) and, if it isn't a pass, the reason."""
    results = {}
    for check in CHECKS:
        try:
            reason = session.client.cannot.get(check.name)
            if reason is not None:
                raise NotOffered(reason)
            check.act(session)
        except NotOffered as lacking:
            results[check.name] = (LACKING, str(lacking))
        except (Failed, JobFailed) as problem:
            results[check.name] = (WRONG, str(problem))
        else:
            results[check.name] = (RIGHT, "")
    return results


RIGHT, WRONG, LACKING = "✓", "✗", "–"


def _create(session: Session) -> None:
    topic = session.topic("admin")
    session.create(topic, {"retention.ms": "123456789"})
    _settles(lambda: session.partitions(topic), records.PARTITIONS, "partitions")


def _describe(session: Session) -> None:
    if "create" in session.client.cannot:
        _create(session)
    _settles(lambda: session.partitions(session.topic("admin")), records.PARTITIONS, "partitions")
    found = session.partitions(session.topic("never-made"))
    if found is not None:
        raise Failed(f"a topic that was never made has {found} partitions")


def _cluster(session: Session) -> None:
    ports = session.ask("cluster")["ports"]
    wanted = [int(session.bootstrap.rpartition(":")[2])]
    if ports != wanted:
        raise Failed(f"brokers on ports {ports}, not {wanted}")


def _describe_configs(session: Session) -> None:
    found = session.configs(session.topic("admin"))
    wanted = {"retention.ms": "123456789", "cleanup.policy": "delete", "segment.ms": "604800000"}
    for name, value in wanted.items():
        if found.get(name) != value:
            raise Failed(f"{name} is {found.get(name)}, not {value}")


def _alter_configs(session: Session) -> None:
    topic = session.topic("admin")
    session.ask("alter_configs", topic=topic, configs={"retention.ms": "987654321"})
    _settles(lambda: session.configs(topic).get("retention.ms"), "987654321", "retention.ms")


def _create_partitions(session: Session) -> None:
    topic = session.topic("admin")
    session.ask("create_partitions", topic=topic, partitions=5)
    _settles(lambda: session.partitions(topic), 5, "partitions")


class _Writing(NamedTuple):
    """One way to write: the topic's name, the settings, the records."""

    kind: str
    compression: str = "none"
    acks: str = "all"
    idempotent: bool = False
    make: Callable[[int, records.Abilities], list[Record]] = records.mixed
    max_bytes: int = MAX_REQUEST_BYTES


def _produce(*ways: _Writing) -> Callable[[Session], None]:
    def act(session: Session) -> None:
        for way in ways:
            if way.compression not in session.client.compressions:
                raise NotOffered(f"no {way.compression}")
            if way.idempotent and "produce idempotent" in session.client.cannot:
                continue
            _write_and_read(session, way)

    return act


def _write_and_read(session: Session, way: _Writing) -> None:
    client, topic = session.client, session.topic(way.kind)
    raised = {} if way.max_bytes == MAX_REQUEST_BYTES else {"max.message.bytes": str(way.max_bytes)}
    session.create(topic, raised)
    sent = way.make(int(time.time() * 1000), client.can)
    offsets = _write(session, topic, way, sent)
    if way.acks == "0":
        # No answer, so the client can't know where a record went.
        if len(offsets) != len(sent):
            raise Failed(f"{len(offsets)} results for {len(sent)} records")
    elif offsets != records.expected_offsets(sent):
        raise Failed(f"offsets {offsets}, not {records.expected_offsets(sent)}")
    session.written[topic] = (way.compression, sent)
    _read(session, client if "consume" not in client.cannot else session.stand_in, topic, [0, 0])


def _write(session: Session, topic: str, way: _Writing, sent: Sequence[Record]) -> list[int | None]:
    offsets: list[int | None] = session.ask(
        "produce",
        topic=topic,
        compression=way.compression,
        acks=way.acks,
        idempotent=way.idempotent,
        max_bytes=way.max_bytes,
        records=sent,
    )
    return offsets


def _read(session: Session, reader: Client, topic: str, starts: list[int]) -> None:
    _, sent = session.written[topic]
    counts = [count - start for count, start in zip(records.counts(sent), starts, strict=True)]
    received = reader.program.ask(
        "consume", session.bootstrap, topic=topic, starts=starts, counts=counts
    )
    problem = records.compare(sent, received, starts=starts, timestamps=session.client.timestamps)
    if problem is not None:
        raise Failed(f"{topic} from {starts}: {problem}")


def _too_large(session: Session) -> None:
    topic = session.topic("small")
    session.create(topic, {"max.message.bytes": "20000"})
    sent = records.plain(int(time.time() * 1000), 2)
    sent[1]["value"] = records.large(0, session.client.can)[2]["value"]
    try:
        _write(session, topic, _Writing("small"), sent)
    except JobFailed as refusal:
        if not TOO_LARGE.search(str(refusal)):
            raise Failed(f"refused, but not for its size: {refusal}") from None
    else:
        raise Failed("a record larger than the topic allows was taken")


def _offsets(session: Session) -> None:
    topic, sent = _a_written_topic(session)
    in_first = [record for record in sent if record["partition"] == 0]
    middle = len(in_first) // 2 if session.client.timestamps else 0
    timestamp = in_first[middle]["timestamp"] if session.client.timestamps else 1
    found = session.offsets(topic, 0, timestamp)
    wanted = {"earliest": 0, "latest": len(in_first), "at": middle}
    if found != wanted:
        raise Failed(f"{found}, not {wanted}")
    if session.client.timestamps:
        # Between two records: the later one is the first at or after that time.
        between = session.offsets(topic, 0, in_first[middle]["timestamp"] + 1)
        if between["at"] != middle + 1:
            raise Failed(f"a time after record {middle} gives {between['at']}")


def _middle(session: Session) -> None:
    topic, sent = _a_written_topic(session)
    _read(session, session.client, topic, [count // 2 + 1 for count in records.counts(sent)])


def _other_reader(session: Session) -> None:
    _a_written_topic(session)
    for topic, (compression, _) in session.written.items():
        if compression in session.reader.compressions:
            try:
                _read(session, session.reader, topic, [0] * records.PARTITIONS)
            except (Failed, JobFailed) as problem:
                raise Failed(f"{topic} read by {session.reader.name}: {problem}") from None


def _delete_records(session: Session) -> None:
    topic, sent = _a_written_topic(session)
    before = records.counts(sent)[0] // 3
    session.ask("delete_records", topic=topic, partition=0, before=before)
    _settles(lambda: session.offsets(topic, 0, 1)["earliest"], before, "the earliest offset")
    _read(session, session.client, topic, [before, 0])


def _delete(session: Session) -> None:
    for name in ("admin", "acks-all"):
        topic = session.topic(name)
        session.ask("delete", topic=topic)
        _settles(partial(session.partitions, topic), None, f"partitions of {topic}")


def _a_written_topic(session: Session) -> tuple[str, list[Record]]:
    topic = session.topic("acks-all")
    if topic not in session.written:
        raise Failed("there is nothing to read: writing with acks=all failed")
    return topic, session.written[topic][1]


def _settles(look: Callable[[], object], wanted: object, what: str) -> None:
    """Kafka's brokers learn of a change a moment after it was answered."""
    deadline = time.monotonic() + SETTLE_S
    while (found := look()) != wanted:
        if time.monotonic() > deadline:
            raise Failed(f"{what}: {found}, not {wanted}")
        time.sleep(POLL_S)


class Check(NamedTuple):
    """A row of the table."""

    name: str
    act: Callable[[Session], None]


def _codec(name: str) -> Check:
    plain = _Writing(name, compression=name)
    idempotent = _Writing(f"{name}-idempotent", compression=name, idempotent=True)
    return Check(f"produce {name}", _produce(plain, idempotent))


CHECKS = (
    Check("create", _create),
    Check("describe topic", _describe),
    Check("describe cluster", _cluster),
    Check("describe configs", _describe_configs),
    Check("alter configs", _alter_configs),
    Check("create partitions", _create_partitions),
    Check("produce acks=0", _produce(_Writing("acks-0", acks="0"))),
    Check("produce acks=1", _produce(_Writing("acks-1", acks="1"))),
    Check("produce acks=all", _produce(_Writing("acks-all"))),
    Check("produce idempotent", _produce(_Writing("idempotent", idempotent=True))),
    *map(_codec, COMPRESSIONS),
    Check("headers", _produce(_Writing("headers", make=records.headers))),
    Check("null keys and values", _produce(_Writing("nulls", make=records.nulls))),
    Check(
        "records of 3 MB",
        _produce(_Writing("large", make=records.large, max_bytes=records.LARGEST_BYTES)),
    ),
    Check("too large is refused", _too_large),
    Check("offsets by time", _offsets),
    Check("read from the middle", _middle),
    Check("read by another client", _other_reader),
    Check("delete records", _delete_records),
    Check("delete topic", _delete),
)
