"""One raw connection: requests out, answers back in order; a closed connection is an answer too."""

import socket
import struct
from collections.abc import Mapping
from typing import Any

from compat.oracle import codec, schema
from compat.oracle.schema import Api
from compat.wire import Address

ANSWER_WITHIN_S = 20.0
FUTURE_VERSION = 99
"""A version that no API has: sent with the newest body that is known."""

CLOSED = {"closed": True}
SILENT = {"no answer within s": ANSWER_WITHIN_S}


class Connection:
    """Several requests may be under way; each is known by its correlation id."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_id = 0
        self._expected: dict[int, tuple[Api, int]] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self.is_closed = False

    def close(self) -> None:
        """End it from this side."""
        self.is_closed = True
        self._socket.close()

    def send(self, api: Api, version: int, values: Mapping[str, Any], client_id: str) -> int:
        """Send a request; its correlation id."""
        self._next_id += 1
        known = version if version != FUTURE_VERSION else api.versions[-1]
        message = schema.request(api.key, known)
        name = client_id.encode()
        head = struct.pack(">hhih", api.key, version, self._next_id, len(name)) + name
        if message.flexible_header:
            head += b"\0"
        frame = head + codec.encode(message.body, values)
        self._expected[self._next_id] = (api, version)
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError:
            self.close()
        return self._next_id

    def receive(self, correlation_id: int) -> dict[str, Any]:
        """The answer to a request; what comes before it is kept."""
        while correlation_id not in self._answers:
            if self.is_closed:
                return dict(CLOSED)
            try:
                (size,) = struct.unpack(">i", self._read(4))
                frame = self._read(size)
            except TimeoutError:
                return dict(SILENT)
            except OSError:
                self.close()
                continue
            (found,) = struct.unpack_from(">i", frame)
            if found not in self._expected:
                return {"an answer to nothing that was asked": found}
            self._answers[found] = self._decode(*self._expected.pop(found), frame)
        return self._answers.pop(correlation_id)

    def _decode(self, api: Api, version: int, frame: bytes) -> dict[str, Any]:
        if version == FUTURE_VERSION:
            # Only ApiVersions is answered, in its version 0 (KIP-511).
            version = 0 if api.name == "ApiVersions" else api.versions[-1]
        message = schema.response(api.key, version)
        try:
            return codec.decode(message.body, frame, 5 if message.flexible_header else 4)
        except codec.Unreadable as error:
            return {"unreadable": str(error), "bytes": frame[4:].hex()}

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return bytes(data)
