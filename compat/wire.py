"""The few Kafka requests that the bench times itself, by hand and over a plain socket.

A client library would hide in its own overhead what is measured here: the time of one Metadata
or CreateTopics answer. Old, fixed-width versions are used, which both Kafka 4 and Dray serve.
"""

import socket
import struct
from types import TracebackType
from typing import NamedTuple, Self

API_VERSIONS, METADATA, CREATE_TOPICS, LIST_OFFSETS = 18, 3, 19, 2
LATEST = -1


class WireError(Exception):
    """The connection broke, or the answer is an error code."""


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Wire:
    """One connection; one request at a time."""

    def __init__(self, address: Address, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def api_versions(self) -> None:
        """Any answer will do: the server is up."""
        self._ask(API_VERSIONS, 0, b"")

    def metadata(self, topics: list[str] | None = None) -> dict[str, int]:
        """The error code of every topic (Metadata v4, no auto-creation); None asks for all."""
        if topics is None:
            body = struct.pack(">i", -1)
        else:
            body = struct.pack(">i", len(topics)) + b"".join(map(_string, topics))
        answer = _Reader(self._ask(METADATA, 4, body + b"\0"))
        answer.take(">i")  # throttle time
        for _ in range(answer.take(">i")):
            answer.take(">i")
            answer.string()
            answer.take(">i")
            answer.string()  # rack
        answer.string()  # cluster id
        answer.take(">i")  # controller
        codes: dict[str, int] = {}
        for _ in range(answer.take(">i")):
            code = answer.take(">h")
            codes[answer.string() or ""] = code
            answer.take(">b")
            for _ in range(answer.take(">i")):
                answer.take(">h")
                answer.take(">i")
                answer.take(">i")
                for _ in range(2):  # replicas, in-sync replicas
                    for _ in range(answer.take(">i")):
                        answer.take(">i")
        return codes

    def create_topic(self, name: str, partitions: int) -> None:
        """CreateTopics v2 with one topic, replication factor 1."""
        topic = _string(name) + struct.pack(">ihii", partitions, 1, 0, 0)
        body = struct.pack(">i", 1) + topic + struct.pack(">ib", 30_000, 0)
        answer = _Reader(self._ask(CREATE_TOPICS, 2, body))
        answer.take(">i")
        for _ in range(answer.take(">i")):
            answer.string()
            code = answer.take(">h")
            message = answer.string()
            if code:
                raise WireError(f"topic {name} was not created: code {code}, {message}")

    def end_offset(self, topic: str, partition: int) -> int:
        """The log's end (ListOffsets v1)."""
        body = struct.pack(">ii", -1, 1) + _string(topic)
        body += struct.pack(">iiq", 1, partition, LATEST)
        answer = _Reader(self._ask(LIST_OFFSETS, 1, body))
        answer.take(">i")
        answer.string()
        answer.take(">i")
        answer.take(">i")
        code = answer.take(">h")
        if code:
            raise WireError(f"{topic}-{partition}: code {code}")
        answer.take(">q")
        return answer.take(">q")

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        head = struct.pack(">hhi", key, version, self._correlation_id) + _string("compat")
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        (correlation_id,) = struct.unpack_from(">i", answer)
        if correlation_id != self._correlation_id:
            raise WireError(f"answer {correlation_id} to request {self._correlation_id}")
        return answer[4:]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise WireError("the server closed the connection")
            data += piece
        return bytes(data)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> int:
        value: int
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def string(self) -> str | None:
        size = self.take(">h")
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at].decode()


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
