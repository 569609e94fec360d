"""Every advertised API and version gets valid but strange requests: each has a well-formed answer
or a closed connection, and nothing unexpected is in the log."""

from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drayd.dispatch import APIS, Api
from protocol.messages import request_class, response_class
from protocol.reader import read_message, skip_tagged_fields
from tests.fuzz.mutation import fuzzing
from tests.fuzz.strange import TOPICS, strange
from tests.protocol.entities import kio_bytes
from tests.wire.client import request_bytes
from tests.wire.process import BrokerProcess, broker

EXAMPLES = 150
ANSWER_WITHIN_S = 60.0
# These may wait for other members of a group, who never come.
WAITING = frozenset({11, 14})
WAIT_FOR_OTHERS_S = 0.05
PRODUCE = 0
# What they change holds for the whole broker, up to being muted: each gets one of its own.
ALONE = frozenset({33, 44, 49})

_SIZE = struct.Struct(">i")
_correlation_ids = itertools.count(1)


class Connection:
    """A blocking connection that is made anew when the broker has closed it."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._socket: socket.socket | None = None

    def send(self, frame: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._process.address, ANSWER_WITHIN_S)
        self._socket.sendall(frame)

    def answer(self, within_s: float) -> bytes | None:
        """The next frame; None if the connection is closed, or nothing comes in time."""
        assert self._socket is not None
        self._socket.settimeout(within_s)
        try:
            size = self._exactly(4)
            return self._exactly(_SIZE.unpack(size)[0])
        except (ConnectionError, TimeoutError) as error:
            self.close()
            if isinstance(error, TimeoutError) and within_s == ANSWER_WITHIN_S:
                raise AssertionError("neither an answer nor an end of the connection") from error
            return None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return bytes(data)


def ask(connection: Connection, key: int, version: int, values: dict[str, Any]) -> Any:
    connection.send(request_bytes(key, version, next(_correlation_ids), values))
    answer = connection.answer(ANSWER_WITHIN_S)
    assert answer is not None
    return decoded(answer, key, version)


def decoded(answer: bytes, key: int, version: int) -> Any:
    view = memoryview(answer)
    cls = response_class(key, version)
    at = 4
    if cls.__header_schema__.__flexible__:
        at = skip_tagged_fields(view, at)
    message, end = read_message(cls, view, at)
    assert end == len(answer), "bytes after the answer"
    return message


def prepare(connection: Connection) -> tuple[UUID, ...]:
    """Topics for the requests to meet; they may be there already."""
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in TOPICS]
    topics[-1]["configs"] = [{"name": "cleanup.policy", "value": "compact"}]
    ask(connection, 19, 7, {"topics": topics})
    answer = ask(connection, 3, 12, {"topics": [{"name": name} for name in TOPICS]})
    return tuple(topic.topic_id for topic in answer.topics if topic.topic_id is not None)


def unexpected(log: Path, start: int) -> list[str]:
    """Tracebacks and failures that the broker has logged since."""
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode().splitlines()
    return [line for line in lines if "Traceback" in line or _level(line) in ("error", "critical")]


def _level(line: str) -> str:
    try:
        return str(json.loads(line).get("level", "")).lower()
    except ValueError:
        # Not one of the broker's own lines: Python itself had something to say.
        return "error"


@contextmanager
def started(folder: Path) -> Iterator[tuple[BrokerProcess, Path]]:
    settings = ("group.initial.rebalance.delay.ms=0",)
    with broker(folder / "data", *settings) as process:
        yield process, folder / "broker.log"
        assert process.running, "the broker has ended"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Path]]:
    with started(tmp_path_factory.mktemp("strange")) as running:
        yield running


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_strange_requests(api: Api, shared: tuple[BrokerProcess, Path], tmp_path: Path) -> None:
    if api.key in ALONE:
        with started(tmp_path) as (process, log):
            check(api, process, log)
    else:
        check(api, *shared)


def check(api: Api, process: BrokerProcess, log: Path) -> None:
    logged = log.stat().st_size
    connection = Connection(process)
    topic_ids = prepare(connection)
    versions = st.sampled_from(range(api.min_version, api.max_version + 1))
    requests = versions.flatmap(lambda version: strange(request_class(api.key, version), topic_ids))

    @fuzzing(EXAMPLES)
    @given(requests)
    def send(request: Any) -> None:
        version = int(type(request).__version__)
        flexible = type(request).__header_schema__.__flexible__
        head = struct.pack(">hhihc", api.key, version, next(_correlation_ids), 1, b"c")
        body = head + (b"\x00" if flexible else b"") + kio_bytes(request)
        connection.send(_SIZE.pack(len(body)) + body)
        if api.key == PRODUCE and request.acks == 0:
            # No answer is due; the next request shows whether the connection still stands.
            connection.close()
            return
        within_s = WAIT_FOR_OTHERS_S if api.key in WAITING else ANSWER_WITHIN_S
        answer = connection.answer(within_s)
        if answer is not None:
            decoded(answer, api.key, version)
        if api.key in ALONE:
            # It may be muted from now on, by a quota.
            connection.close()

    try:
        send()
    finally:
        connection.close()
    assert process.running
    assert unexpected(log, logged) == []
