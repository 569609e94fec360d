"""Request heads and response frames.

`read_head` gives the API key, version and correlation id of any frame that is long enough to
have them, also where the key or version is unknown, so that the caller can answer (KIP-511) or
close. `frame_response` gives the buffers to write: small pieces joined, large ones (record
payloads) as they are.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812  (its only name in the standard library)
from typing import Any, NamedTuple

from protocol.errors import KafkaError, Malformed
from protocol.messages import request_class
from protocol.reader import skip_tagged_fields
from protocol.writer import Buffer, Payload, Piece, write_message

_FIXED_HEAD = Struct(">hhi")
_INT16 = Struct(">h")
_SIZE_AND_CORRELATION = Struct(">ii")
# One joined copy beats many small writes; above this a copy costs more than a buffer.
JOIN_BELOW_BYTES = 4096


class RequestHead(NamedTuple):
    """The header of a request; the body starts at `body_offset` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def read_head(frame: memoryview) -> RequestHead:
    """The head of a frame (without its four bytes of size). Raises Malformed.

    For an API key or version without message classes nothing is known of the header beyond its
    first eight bytes: `client_id` is None and the body is taken to start after them.
    """
    if len(frame) < _FIXED_HEAD.size:
        raise Malformed(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = _FIXED_HEAD.unpack_from(frame)
    try:
        header = request_class(api_key, api_version).__header_schema__
    except KafkaError:
        return RequestHead(api_key, api_version, correlation_id, None, _FIXED_HEAD.size)
    try:
        client_id, at = _client_id(frame, _FIXED_HEAD.size)
        if header.__flexible__:
            at = skip_tagged_fields(frame, at)
    except (StructError, IndexError) as error:
        raise Malformed("the request ends within its header") from error
    return RequestHead(api_key, api_version, correlation_id, client_id, at)


def _client_id(frame: memoryview, at: int) -> tuple[str | None, int]:
    """A nullable string with a two-byte length in every header version, also in flexible ones."""
    size = _INT16.unpack_from(frame, at)[0]
    at += _INT16.size
    if size < 0:
        return None, at
    end = at + size
    if end > len(frame):
        raise Malformed(f"a client id of {size} bytes where {len(frame) - at} are left")
    # Only a label in logs and metrics: Kafka lets any bytes pass, so do we.
    return str(frame[at:end], "utf-8", "replace"), end


def frame_response(
    api_key: int, api_version: int, correlation_id: int, entity: Any
) -> list[Buffer]:
    """Size, response header and body of an answer, as buffers for `writelines`.

    The header's version is that of the entity's class: flexible from the API's first flexible
    version on, except for ApiVersions, whose header is always version 0 (KIP-511).
    """
    cls = type(entity)
    if (cls.__api_key__, cls.__version__) != (api_key, api_version):
        raise TypeError(
            f"{cls.__name__} v{cls.__version__} is no answer to {api_key} v{api_version}"
        )
    pieces: list[Piece] = [b""]
    if cls.__header_schema__.__flexible__:
        pieces.append(b"\x00")
    write_message(pieces, entity)
    size = sum(map(len, pieces)) + 4
    pieces[0] = _SIZE_AND_CORRELATION.pack(size, correlation_id)
    return _joined(pieces)


def _joined(pieces: list[Piece]) -> list[Buffer]:
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        for buffer in piece.buffers if isinstance(piece, Payload) else (piece,):
            if len(buffer) < JOIN_BELOW_BYTES:
                small.append(buffer)
                continue
            if small:
                buffers.append(b"".join(small))
                small = []
            buffers.append(buffer)
    if small:
        buffers.append(b"".join(small))
    return buffers
