"""Requests of garbage: a frame is decoded or is `Malformed`, and nothing else happens."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import KafkaError, Malformed
from protocol.frames import read_head
from protocol.messages import known_versions, request_class
from protocol.reader import read_message
from tests.fuzz.mutation import fuzzing, mutated
from tests.protocol.entities import API_KEYS, kio_bytes, messages

TLS_HELLO = bytes.fromhex("16030100f8010000f40303")


def decode(frame: bytes) -> None:
    """What a connection does with a frame."""
    view = memoryview(frame)
    try:
        head = read_head(view)
        message, end = read_message(
            request_class(head.api_key, head.api_version), view, head.body_offset
        )
    except (Malformed, KafkaError):
        return
    assert head.body_offset <= end <= len(frame)
    assert repr(message)


@fuzzing(300)
@given(st.binary(max_size=100))
def test_bytes_of_any_kind(frame: bytes) -> None:
    decode(frame)


@pytest.mark.parametrize("frame", (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", TLS_HELLO, bytes(64)))
def test_other_protocols(frame: bytes) -> None:
    decode(frame)


@pytest.mark.parametrize("api_key", API_KEYS)
@fuzzing(30)
@given(data=st.data())
def test_any_body(api_key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(known_versions(api_key)))
    head = struct.pack(">hhih", api_key, version, 1, -1)
    # A zero byte where a flexible header has its tags.
    decode(head + b"\x00" * data.draw(st.integers(0, 1)) + data.draw(st.binary(max_size=200)))


@pytest.mark.parametrize("api_key", (0, 1, 2, 3, 18, 19, 20, 22, 23, 60))
@fuzzing(100)
@given(data=st.data())
def test_requests_with_a_few_wrong_bytes(api_key: int, data: st.DataObject) -> None:
    message = data.draw(messages(api_key, "request"))
    tags = b"\x00" if message.__header_schema__.__flexible__ else b""
    head = struct.pack(">hhih", api_key, message.__version__, 1, 1) + b"c" + tags
    decode(head + data.draw(mutated(kio_bytes(message))))
