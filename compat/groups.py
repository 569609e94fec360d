"""Consumer groups of real clients, while members come, leave and are killed, and the broker too.

A topic of twelve partitions is written to all the time. One member starts, two more join, one
leaves, another joins and one is killed with SIGKILL, one more joins and in the middle of that
rebalance the broker is killed with SIGKILL and started again. Then everything is read to its end.

What must hold is judged from the members' own events (``compat/clients/member.py``):

- after each step every partition has one owner, and every member owns some and reads;
- no record is skipped;
- a record is read again only if it was not committed: whoever gets a partition starts at, or
  after, every offset whose commit was confirmed before that;
- no two members own a partition at once, unless the earlier one was killed or cut off.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from operator import ge
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from compat import toolchain
from compat.program import JobFailed, Program
from compat.servers import Dray, Kafka, Server, free_ports

PARTITIONS = 12
STEP_TIMEOUT_S = 60.0
POLL_S = 0.05
RECORDS_PER_S = 300
# Some members tell whole milliseconds, and a rebalance takes hardly more.
CLOCK_MS = 5.0


class Variant(NamedTuple):
    """A client and how it joins."""

    client: str
    protocol: str
    assignor: str

    @property
    def name(self) -> str:
        """For the table."""
        how = "group.protocol=consumer" if self.protocol == "consumer" else self.assignor
        return f"{self.client}, {how}"


VARIANTS = (
    Variant("Java", "classic", "range"),
    Variant("Java", "classic", "cooperative-sticky"),
    Variant("Java", "consumer", ""),
    Variant("librdkafka", "classic", "range"),
    Variant("librdkafka", "classic", "cooperative-sticky"),
    Variant("librdkafka", "consumer", ""),
    Variant("kafka-python", "classic", "range"),
    Variant("aiokafka", "classic", "range"),
    Variant("franz-go", "classic", "range"),
    Variant("franz-go", "classic", "cooperative-sticky"),
)

# Sessions of six seconds, so that a killed member is missed soon.
SERVER_SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.heartbeat.interval.ms=1000",
    "group.consumer.heartbeat.interval.ms=1000",
)


class Event(NamedTuple):
    """What a member told, and who it was."""

    at_ms: float
    member: int
    what: dict[str, Any]


class Wrong(Exception):
    """What is wrong, in one sentence."""


class Member:
    """A member's process and its events."""

    def __init__(self, number: int, command: list[str], job: dict[str, Any]) -> None:
        self.number = number
        self.events: list[Event] = []
        self.ended_ms: float | None = None
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=toolchain.ROOT,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def owned(self) -> set[int]:
        """The partitions that it owns now."""
        for event in reversed(self.events):
            if "owned" in event.what:
                return set(event.what["owned"])
        return set()

    @property
    def died(self) -> bool:
        """Whether the process ended by itself."""
        return self.ended_ms is None and self._process.poll() is not None

    def reads_since(self, at_ms: float) -> bool:
        """Whether it has read anything since."""
        return any("read" in event.what for event in self.events if event.at_ms >= at_ms)

    def leave(self) -> None:
        """Let it leave the group."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._finish(STEP_TIMEOUT_S)
        if not any("left" in event.what for event in self.events):
            raise Wrong(f"member {self.number} did not leave well")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._finish(STEP_TIMEOUT_S)

    def close(self) -> None:
        """The end, whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
        self._finish(STEP_TIMEOUT_S)

    def _finish(self, timeout_s: float) -> None:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.ended_ms = self.ended_ms or time.time() * 1000
        self._reader.join(timeout_s)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A killed process may leave half a line.
            with contextlib.suppress(json.JSONDecodeError):
                what = json.loads(line)
                if "error" in what:
                    print(f"member {self.number}: {what['error']}", file=sys.stderr)
                elif "at" in what:
                    self.events.append(Event(what.pop("at"), self.number, what))


class Feed:
    """Records for all partitions, until it is stopped; ``ends`` is what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.ends = [0] * PARTITIONS
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 60_000,
                "log_level": 2,
            }
        )
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for every acknowledgement."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        if left or self._failures:
            raise Wrong(f"{left} records were not acknowledged; {self._failures[:2]}")

    def _run(self) -> None:
        sent = 0
        while not self._stop.wait(PARTITIONS / RECORDS_PER_S):
            for partition in range(PARTITIONS):
                self._producer.produce(
                    self._topic, str(sent).encode(), partition=partition, on_delivery=self._done
                )
            sent += 1
            self._producer.poll(0)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.ends[partition] = max(self.ends[partition], offset + 1)


def _told(event: dict[str, Any], what: str) -> list[tuple[int, int]]:
    if what not in event:
        return []
    if what == "read":
        return [(event["read"], event["end"])]
    return [(int(partition), end) for partition, end in event["committed"].items()]


class Story:
    """One variant's members, from the first to the last."""

    def __init__(self, server: Server, variant: Variant, command: list[str], topic: str) -> None:
        self._server = server
        self._command = command
        self._job = {
            "do": "member",
            "bootstrap": server.bootstrap,
            "case": {
                "group": f"group-{topic}",
                "topic": topic,
                "protocol": variant.protocol,
                "assignor": variant.assignor,
            },
        }
        self.group = f"group-{topic}"
        self.topic = topic
        self.members: list[Member] = []
        # Times in which the broker was away, and a moment after: members may own in vain.
        self.cut_off_ms: list[tuple[float, float]] = []

    @property
    def alive(self) -> list[Member]:
        """The members that should be in the group."""
        return [member for member in self.members if member.ended_ms is None]

    def join(self) -> Member:
        """One more member."""
        self.members.append(Member(len(self.members), self._command, self._job))
        return self.members[-1]

    def settle(self, step: str) -> None:
        """Wait until every partition has one owner and everybody reads."""
        began_ms = time.time() * 1000
        self._until(step, self._is_shared)
        self._until(step, lambda: all(member.reads_since(began_ms) for member in self.alive))

    def kill_broker_in_rebalance(self) -> None:
        """A member joins; when the first of the others hears of it, the broker is killed."""
        before = [(member, len(member.events)) for member in self.alive]
        self.join()

        def is_heard() -> bool:
            return any(
                "owned" in event.what for member, count in before for event in member.events[count:]
            )

        self._until("a rebalance begins", is_heard)
        began_ms = time.time() * 1000
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.restart()
        self.settle("after the broker was killed")
        self.cut_off_ms.append((began_ms, time.time() * 1000))

    def catch_up(self, ends: list[int]) -> None:
        """Wait until so much is committed. A commit that a rebalance refuses isn't repeated, so
        this is only sure to end while more is written."""
        self._until("commit", lambda: all(map(ge, self._ends("committed"), ends)))

    def finish(self, ends: list[int]) -> None:
        """Wait until all is read and committed, and let everybody leave."""
        self._until("read everything", lambda: self._ends("read") == ends)
        self._until("commit everything", lambda: self._ends("committed") == ends)
        for member in self.alive:
            member.leave()
        found = _committed(self._server.bootstrap, self.group, self.topic)
        if found != ends:
            raise Wrong(f"committed at the end: {found}, written: {ends}")

    def close(self) -> None:
        """Leave no process behind."""
        for member in self.members:
            member.close()

    def events(self) -> list[Event]:
        """Everything that was told, in order."""
        found = [event for member in self.members for event in member.events]
        return sorted(found, key=lambda event: event.at_ms)

    def _is_shared(self) -> bool:
        owned = [member.owned for member in self.alive]
        return all(owned) and sorted(p for each in owned for p in each) == list(range(PARTITIONS))

    def _ends(self, what: str) -> list[int]:
        """How far each partition was read, or committed."""
        ends = [0] * PARTITIONS
        for member in self.members:
            for event in list(member.events):
                for partition, end in _told(event.what, what):
                    ends[partition] = max(ends[partition], end)
        return ends

    def _until(self, step: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while not done():
            for member in self.alive:
                if member.died:
                    raise Wrong(f"{step}: member {member.number} ended by itself")
            if time.monotonic() > deadline:
                owned = {member.number: sorted(member.owned) for member in self.alive}
                raise Wrong(f"{step}: not within {STEP_TIMEOUT_S:.0f} s; owned: {owned}")
            time.sleep(POLL_S)


class PinnedDray(Dray):
    """Dray on a port that it keeps when it starts again."""

    def __init__(self, folder: Path, settings: Sequence[str]) -> None:
        super().__init__(folder, settings)
        (self._port,) = free_ports(1)

    def command(self) -> list[str]:
        command = super().command()
        command[command.index("--listen") + 1] = f"127.0.0.1:{self._port}"
        return command


def make_server(kind: str, folder: Path) -> Server:
    """A server whose members' sessions are short, and that can be killed and started again."""
    if kind == "dray":
        return PinnedDray(folder, SERVER_SETTINGS)
    return Kafka(folder, synced=False, settings=SERVER_SETTINGS[1:])


def run(server: Server, variant: Variant, command: list[str], stand_in: Program) -> str:
    """What is wrong with a variant; an empty string if nothing is."""
    topic = f"{variant.client}-{variant.protocol}-{variant.assignor or 'server'}"
    try:
        stand_in.ask("create", server.bootstrap, topic=topic, partitions=PARTITIONS, configs={})
        with _story(server, variant, command, topic) as (story, feed):
            story.join()
            story.settle("one member")
            story.join()
            story.join()
            story.settle("three members")
            story.alive[0].leave()
            story.settle("one left")
            story.join()
            story.settle("three again")
            story.alive[1].kill()
            story.settle("one was killed")
            story.kill_broker_in_rebalance()
            story.catch_up(list(feed.ends))
            feed.stop()
            story.finish(feed.ends)
            judge(story.events(), feed.ends, _gone(story), story.cut_off_ms)
    except (Wrong, JobFailed) as problem:
        return str(problem)
    return ""


@contextlib.contextmanager
def _story(
    server: Server, variant: Variant, command: list[str], topic: str
) -> Iterator[tuple[Story, Feed]]:
    story = Story(server, variant, command, topic)
    feed = Feed(server.bootstrap, topic)
    try:
        yield story, feed
    finally:
        story.close()
        with contextlib.suppress(Wrong):
            feed.stop()


def _gone(story: Story) -> dict[int, float]:
    """When each member's process ended."""
    return {
        member.number: member.ended_ms for member in story.members if member.ended_ms is not None
    }


def judge(
    events: list[Event],
    ends: list[int],
    gone_ms: dict[int, float],
    cut_off_ms: list[tuple[float, float]],
) -> None:
    """Raise Wrong if a record was skipped, or read again although it was committed."""
    read: list[set[int]] = [set() for _ in ends]
    confirmed = [0] * len(ends)
    # For each member and partition: where it may start, and where it goes on.
    floor: dict[tuple[int, int], int] = {}
    position: dict[tuple[int, int], int] = {}
    owners: dict[int, set[int]] = {partition: set() for partition in range(len(ends))}
    for at_ms, member, what in events:
        if "owned" in what:
            for partition in range(len(ends)):
                if partition not in what["owned"]:
                    owners[partition].discard(member)
                    position.pop((member, partition), None)
                elif member not in owners[partition]:
                    rivals = {
                        each
                        for each in owners[partition]
                        if _gives_up_ms(events, each, partition, at_ms, gone_ms) > at_ms + CLOCK_MS
                    }
                    cut_off = any(start <= at_ms <= end for start, end in cut_off_ms)
                    if rivals and not cut_off:
                        raise Wrong(f"partition {partition}: owned by {rivals} and by {member}")
                    owners[partition].add(member)
                    floor[member, partition] = confirmed[partition]
                    position.pop((member, partition), None)
        elif "read" in what:
            partition, start, end = what["read"], what["start"], what["end"]
            key = (member, partition)
            if key not in position and start < floor.get(key, 0):
                raise Wrong(
                    f"partition {partition}: member {member} starts at {start} though "
                    f"{floor[key]} was committed"
                )
            if start < position.get(key, start):
                raise Wrong(f"partition {partition}: member {member} goes back to {start}")
            position[key] = end
            read[partition] |= set(range(start, end))
        elif "committed" in what:
            for partition, offset in what["committed"].items():
                confirmed[int(partition)] = max(confirmed[int(partition)], offset)
    for partition, end in enumerate(ends):
        skipped = sorted(set(range(end)) - read[partition])
        if skipped:
            raise Wrong(f"partition {partition}: {len(skipped)} records skipped, at {skipped[0]}")


def _gives_up_ms(
    events: list[Event], member: int, partition: int, since_ms: float, gone_ms: dict[int, float]
) -> float:
    for at_ms, who, what in events:
        if who == member and at_ms >= since_ms and partition not in what.get("owned", [partition]):
            return at_ms
    return gone_ms[member]


def _committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return [place.offset for place in consumer.committed(places, 20)]
    finally:
        consumer.close()
