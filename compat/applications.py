"""Applications that are built on Kafka: Kafka Streams and Kafka Connect, run and restarted.

Streams counts words. Lines are written, it is stopped and started again with more lines, the
broker is killed with SIGKILL and started again under it, and more lines come. Then it loses its
local state, and must make it anew from the broker. Every word's last count is right, or, after
the kill, not too low: it promises at least once.

Connect runs as a distributed worker, whose configuration, offsets and status are in topics: a file
source writes the lines of a file to a topic, a file sink writes them to another file. Both worker
and broker are restarted in between, and every line arrives, in order, exactly once or, where
something was killed, at least once.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat import toolchain
from compat.groups import make_server
from compat.servers import Server, free_ports

STEP_TIMEOUT_S = 60.0
POLL_S = 0.1
STOP_TIMEOUT_S = 30.0
STREAMS, CONNECT = "Kafka Streams", "Kafka Connect"

# These run for seconds: the JVM's best compiler would cost more than it brings.
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


class ApplicationFailed(Exception):
    """An application did not do what it should; the message says what."""


class Application:
    """A process with its output in a file."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that isn't enough."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ApplicationFailed(f"it did not stop by itself: {self.tail()}") from None

    def check(self) -> None:
        """Complain if it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise ApplicationFailed(f"it ended with {self._process.returncode}: {self.tail()}")

    def output(self) -> str:
        """Everything that it printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def tail(self) -> str:
        """The end of what it printed."""
        return self.output()[-1500:]

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Wait for something that the application does."""
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while not done():
            self.check()
            if time.monotonic() > deadline:
                raise ApplicationFailed(f"{what}: not within {STEP_TIMEOUT_S:.0f} s: {self.tail()}")
            time.sleep(POLL_S)


@contextlib.contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Application]:
    """An application that is stopped at the end, whatever happened."""
    application = Application(command, log)
    try:
        yield application
    finally:
        with contextlib.suppress(ApplicationFailed):
            application.stop()


# -- Kafka Streams -------------------------------------------------------------------------------


def streams(server: Server, folder: Path) -> None:
    """Count words; ApplicationFailed if a count is wrong."""
    lines, counts, state = "lines", "word-counts", folder / "state"
    _make_topics(server, {lines: 3, counts: 3})
    words: Counter[str] = Counter()
    tally = Tally(server, counts)
    arguments = (server.bootstrap, "word-count", lines, counts, str(state))
    command = [*toolchain.application("WordCount"), *arguments]
    with running(command, folder / "streams.log") as application, tally:

        def write(*texts: str) -> None:
            words.update(word for text in texts for word in text.split())
            _produce(server, lines, texts)

        def counted(*, exactly: bool) -> None:
            what = "every word is counted"
            application.until(what, lambda: tally.agrees(words, exactly=exactly))

        write("to be or not to be", "that is the question")
        application.start()
        counted(exactly=True)
        write(*(f"to word{number % 7}" for number in range(200)))
        counted(exactly=True)
        application.stop()
        write("to restart")
        application.start()
        counted(exactly=True)
        os.kill(server.pid, signal.SIGKILL)
        server.restart()
        write("to go on", "after a crash")
        counted(exactly=False)
        application.stop()
        shutil.rmtree(state)
        write("to remember", "what was counted")
        application.start()
        counted(exactly=False)
        application.stop()


class Tally:
    """The last count of each word, as a consumer of the output sees it."""

    def __init__(self, server: Server, topic: str) -> None:
        # It isn't the tally that is tried: what it says of the broker's restart is noise.
        quiet = {"log_level": 0, "enable.auto.commit": False}
        where = {"bootstrap.servers": server.bootstrap, "group.id": "tally"}
        self._consumer = Consumer({**where, **quiet})
        self._consumer.assign([TopicPartition(topic, at, 0) for at in range(3)])
        self._counts: dict[str, int] = {}

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def agrees(self, words: Counter[str], *, exactly: bool) -> bool:
        """Whether the counts are these. One that is too high never becomes right."""
        for message in self._read():
            key, value = message.key(), message.value()
            if isinstance(key, bytes) and isinstance(value, bytes):
                self._counts[key.decode()] = int(value)
        if not exactly:
            return all(self._counts.get(word, 0) >= count for word, count in words.items())
        high = {word: count for word, count in self._counts.items() if count > words[word]}
        if high:
            raise ApplicationFailed(f"counted more than was written: {high}")
        return self._counts == dict(words)

    def _read(self) -> list[Message]:
        return [each for each in self._consumer.consume(1000, 0.5) if each.error() is None]


# -- Kafka Connect -------------------------------------------------------------------------------


def connect(server: Server, folder: Path) -> None:
    """Copy a file through a topic; ApplicationFailed if a line is lost or out of order."""
    source, sink, topic = folder / "source.txt", folder / "sink.txt", "copied-lines"
    _make_topics(server, {topic: 1})
    source.write_text("")
    worker = Worker(server, folder)
    written: list[str] = []
    with running(worker.command, folder / "connect.log") as application:

        def write(*lines: str) -> None:
            written.extend(lines)
            with source.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)

        def copied(*, exactly: bool) -> None:
            application.until("every line is copied", lambda: _has(sink, written, exactly=exactly))

        application.start()
        application.until("the worker answers", worker.answers)
        worker.make("source", "FileStreamSource", file=str(source), topic=topic)
        worker.make("sink", "FileStreamSink", file=str(sink), topics=topic)
        application.until("the connectors run", lambda: worker.runs("source", "sink"))
        write(*(f"line {number}" for number in range(100)))
        copied(exactly=True)
        application.stop()
        write("written while it was down")
        application.start()
        application.until("the connectors run again", lambda: worker.runs("source", "sink"))
        write("written after a restart")
        copied(exactly=True)
        os.kill(server.pid, signal.SIGKILL)
        server.restart()
        write("written after a crash of the broker")
        copied(exactly=False)
        application.stop()


class Worker:
    """A distributed worker and its REST interface."""

    def __init__(self, server: Server, folder: Path) -> None:
        (port,) = free_ports(1)
        self._address = f"http://127.0.0.1:{port}"
        properties = {
            "bootstrap.servers": server.bootstrap,
            "group.id": "connect-cluster",
            "listeners": self._address,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "config.storage.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "offset.storage.partitions": 3,
            "status.storage.partitions": 1,
            "offset.flush.interval.ms": 500,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 500,
            "plugin.discovery": "service_load",
        }
        file = folder / "connect.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
        libs = toolchain.application_libs()
        self.command = [toolchain.java_program(), *JVM, "-cp", f"{libs}/*", main_class, str(file)]

    def answers(self) -> bool:
        """Whether it is part of its group, so that it takes connectors."""
        try:
            self._ask("/connectors")
        except (OSError, ValueError):
            return False
        return True

    def make(self, name: str, kind: str, **config: str) -> None:
        """Create a connector; a worker that rebalances is asked again."""
        config = {"connector.class": kind, "tasks.max": "1", **config}
        body = json.dumps(config).encode()
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while True:
            try:
                self._ask(f"/connectors/{name}/config", body)
                return
            except (OSError, ValueError) as error:
                if time.monotonic() > deadline:
                    raise ApplicationFailed(f"connector {name} was not made: {error}") from error
            time.sleep(POLL_S)

    def runs(self, *names: str) -> bool:
        """Whether these connectors, and a task of each, are running."""
        try:
            states = [self._ask(f"/connectors/{name}/status") for name in names]
        except (OSError, ValueError):
            return False
        for state in states:
            for each in (state["connector"], *state["tasks"]):
                if each["state"] == "FAILED":
                    raise ApplicationFailed(f"{state['name']} failed: {each.get('trace')}")
        return all(
            state["connector"]["state"] == "RUNNING"
            and [task["state"] for task in state["tasks"]] == ["RUNNING"]
            for state in states
        )

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(
            self._address + path,
            data=body,
            method="GET" if body is None else "PUT",
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


def _has(file: Path, lines: Sequence[str], *, exactly: bool) -> bool:
    """Whether the file has these lines, in this order; else with repeated ones in between."""
    found = file.read_text().splitlines() if file.exists() else []
    if exactly:
        if found[: len(lines)] != lines[: len(found)] or len(found) > len(lines):
            raise ApplicationFailed(f"{file.name} has {found[-3:]}, not {lines[-3:]}")
        return found == lines
    if not set(found) <= set(lines):
        raise ApplicationFailed(f"{file.name} has lines that nobody wrote")
    first_seen = list(dict.fromkeys(found))
    if first_seen != lines[: len(first_seen)]:
        raise ApplicationFailed(f"{file.name} has {first_seen[-3:]} out of order")
    return first_seen == lines


# -- both ----------------------------------------------------------------------------------------


def _make_topics(server: Server, topics: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
    for future in made.values():
        future.result(STEP_TIMEOUT_S)


def _produce(server: Server, topic: str, texts: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5})
    for text in texts:
        producer.produce(topic, text.encode())
    if producer.flush(STEP_TIMEOUT_S):
        raise ApplicationFailed(f"{topic} was not written to")


APPLICATIONS: dict[str, Callable[[Server, Path], None]] = {STREAMS: streams, CONNECT: connect}


def run(kind: str, folder: Path) -> dict[str, str]:
    """What is wrong with each application, empty if nothing is."""
    results = {}
    for name, play in APPLICATIONS.items():
        print(f"{name} … ", end="", flush=True, file=sys.stderr)
        began = time.perf_counter()
        own = folder / re.sub(r"\W+", "-", name.lower())
        own.mkdir(parents=True)
        results[name] = ""
        with make_server(kind, own / "server") as server:
            try:
                play(server, own)
            except ApplicationFailed as failure:
                results[name] = str(failure)
        outcome = "FAILED" if results[name] else "ok"
        print(f"{outcome}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return results
