"""The admin client against peers that misbehave; real brokers are in test_admin."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from drayd.client import Client, ClientError
from drayd.kinds import HostPort

# ApiVersions v0: no error, one API (Metadata 0 to 8, which is older than what the client speaks).
OLD_BROKER = struct.pack(">ihihhh", 1, 0, 1, 3, 0, 8)


@contextmanager
def peer(answer: Callable[[socket.socket], None]) -> Iterator[HostPort]:
    """A TCP server for one connection, which `answer` handles."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(30)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield HostPort("127.0.0.1", listener.getsockname()[1])
        finally:
            thread.join(timeout=30)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def after_request(answer: bytes) -> Callable[[socket.socket], None]:
    def handle(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    return handle


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"", "Lost the broker on .*: it closed the connection"),
        (b"\x00\x00", "Lost the broker on .*: it closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no Kafka broker"),
        (b"\xff\xff\xff\xff", "is no Kafka broker"),
        (framed(struct.pack(">ih", 99, 0)), "that is none: an answer to request 99"),
        (framed(struct.pack(">ihi", 1, 0, 1000)), "sent a ApiVersions answer that is none"),
    ],
)
def test_answers_that_make_no_sense(answer: bytes, sentence: str) -> None:
    with peer(after_request(answer)) as address, pytest.raises(ClientError, match=sentence):
        Client(address)


def test_a_peer_that_says_nothing() -> None:
    released = threading.Event()

    def silent(connection: socket.socket) -> None:
        released.wait(30)

    with peer(silent) as address:
        with pytest.raises(ClientError, match="it didn't answer in time"):
            Client(address, timeout_seconds=0.05)
        released.set()


def test_a_broker_that_is_too_old() -> None:
    with (
        peer(after_request(framed(OLD_BROKER))) as address,
        Client(address) as client,
        pytest.raises(ClientError, match="has no Metadata that drayd speaks"),
    ):
        client.topics()
