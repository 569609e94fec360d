"""Every message that kio knows, in every version: our reader and writer against kio's."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from protocol.errors import Malformed
from protocol.reader import read_message
from protocol.writer import Payload, Piece, write_message
from tests.protocol.entities import API_KEYS, kio_bytes, messages

KINDS = ("request", "response")
# Loading a class of each version for the first time is slow; the messages themselves are not.
few = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def our_bytes(entity: Any) -> bytes:
    pieces: list[Piece] = []
    write_message(pieces, entity)
    return b"".join(
        b"".join(piece.buffers) if isinstance(piece, Payload) else piece for piece in pieces
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("api_key", API_KEYS)
@few
@given(data=st.data())
def test_read_and_written_as_kio_does(api_key: int, kind: str, data: st.DataObject) -> None:
    message = data.draw(messages(api_key, kind))
    encoded = kio_bytes(message)
    assert our_bytes(message) == encoded
    trailing = data.draw(st.binary(max_size=3))
    ours, end = read_message(type(message), memoryview(b"ab" + encoded + trailing), 2)
    assert end == 2 + len(encoded)
    assert ours == message
    # kio's reader is safe here: the bytes come from kio's writer.
    kios, size = entity_reader(type(message))(encoded, 0)
    assert (ours, end - 2) == (kios, size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("api_key", (0, 1, 2, 3, 18, 19, 20, 22, 23, 60))
@few
@given(data=st.data())
def test_every_truncation_is_malformed(api_key: int, kind: str, data: st.DataObject) -> None:
    message = data.draw(messages(api_key, kind))
    encoded = memoryview(kio_bytes(message))
    for size in range(len(encoded)):
        with pytest.raises(Malformed):
            read_message(type(message), encoded[:size])
