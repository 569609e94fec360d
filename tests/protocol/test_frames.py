"""Request heads and response frames."""

import io
import struct
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.serial import entity_reader, entity_writer

from protocol.errors import ErrorCode, Malformed
from protocol.frames import JOIN_BELOW_BYTES, RequestHead, frame_response, read_head
from protocol.messages import make, nested, response_class
from protocol.writer import Buffer, Payload

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18


def header_bytes(cls: Any, api_key: int, version: int, client_id: str | None) -> bytes:
    sink = io.BytesIO()
    header = cls(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=-7,
        client_id=client_id,
    )
    entity_writer(cls)(sink, header)
    return sink.getvalue()


@pytest.mark.parametrize("client_id", (None, "", "rdkafka", "é" * 100))
@pytest.mark.parametrize(
    ("cls", "api_key", "version"),
    (
        (RequestHeaderV1, METADATA, 8),
        (RequestHeaderV2, METADATA, 9),
        (RequestHeaderV1, API_VERSIONS, 2),
        (RequestHeaderV2, API_VERSIONS, 3),
        (RequestHeaderV1, PRODUCE, 8),
        (RequestHeaderV2, PRODUCE, 13),
    ),
)
def test_heads_of_both_versions(
    cls: Any, api_key: int, version: int, client_id: str | None
) -> None:
    encoded = header_bytes(cls, api_key, version, client_id)
    head = read_head(memoryview(encoded + b"body"))
    assert head == RequestHead(api_key, version, -7, client_id, len(encoded))
    for size in range(len(encoded)):
        with pytest.raises(Malformed):
            read_head(memoryview(encoded[:size]))


@pytest.mark.parametrize(
    ("api_key", "version"), ((PRODUCE, 0), (PRODUCE, 99), (API_VERSIONS, 30), (999, 0), (-1, -1))
)
def test_unknown_apis_still_have_a_correlation_id(api_key: int, version: int) -> None:
    frame = struct.pack(">hhi", api_key, version, 42) + b"\xff\xff\xff"
    assert read_head(memoryview(frame)) == RequestHead(api_key, version, 42, None, 8)


def test_tags_in_a_header_are_skipped() -> None:
    encoded = header_bytes(RequestHeaderV2, METADATA, 12, "c")[:-1] + b"\x01\x05\x02hi"
    assert read_head(memoryview(encoded + b"body")).body_offset == len(encoded)


def test_a_client_id_may_be_any_bytes() -> None:
    frame = struct.pack(">hhih", METADATA, 1, 1, 2) + b"a\xff"
    assert read_head(memoryview(frame)).client_id == "a\N{REPLACEMENT CHARACTER}"


def fetch_response(version: int, records: list[Any]) -> Any:
    cls = response_class(FETCH, version)
    topic = nested(cls, "responses")
    partition = nested(topic, "partitions")
    partitions = tuple(
        make(
            partition,
            partition_index=index,
            error_code=ErrorCode.none,
            high_watermark=10,
            last_stable_offset=10,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=item,
        )
        for index, item in enumerate(records)
    )
    return make(
        cls,
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        session_id=0,
        responses=(make(topic, topic="t", topic_id=None, partitions=partitions),),
    )


def framed(version: int, records: list[Any]) -> tuple[list[Buffer], bytes]:
    buffers = frame_response(FETCH, version, 77, fetch_response(version, records))
    return buffers, b"".join(buffers)


@pytest.mark.parametrize("version", range(4, 19))
def test_payloads_are_framed_as_kio_would(version: int) -> None:
    header = bytes(range(61))
    body = b"x" * (2 * JOIN_BELOW_BYTES)
    payload = Payload([header, memoryview(body)])
    _, frame = framed(version, [payload, None, b"small", memoryview(body)])
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert (size, correlation_id) == (len(frame) - 4, 77)
    cls = response_class(FETCH, version)
    start = 9 if version >= 12 else 8
    message, end = entity_reader(cls)(frame, start)
    assert end == len(frame) - start
    read = [partition.records for partition in message.responses[0].partitions]
    assert read == [header + body, None, b"small", body]


def test_payloads_are_not_copied() -> None:
    large = [memoryview(bytearray(JOIN_BELOW_BYTES)) for _ in range(3)]
    buffers, _ = framed(13, [Payload([b"h" * 61, large[0], large[1]]), Payload([large[2]])])
    kept = [buffer for buffer in buffers if any(buffer is view for view in large)]
    assert [id(buffer) for buffer in kept] == [id(view) for view in large]


def test_small_pieces_are_joined() -> None:
    small = Payload([b"batch %d" % index for index in range(1000)])
    buffers, frame = framed(13, [small])
    assert len(buffers) == 1
    assert b"batch 0batch 1batch 2" in frame


@pytest.mark.parametrize("version", range(5))
def test_the_header_of_api_versions_is_always_version_0(version: int) -> None:
    cls = response_class(API_VERSIONS, version)
    entity = make(cls, error_code=ErrorCode.none, api_keys=(), throttle_time=0)
    frame = b"".join(frame_response(API_VERSIONS, version, 5, entity))
    message, size = entity_reader(cls)(frame, 8)
    assert size == len(frame) - 8
    assert message.error_code is ErrorCode.none


def test_an_answer_of_another_version_is_refused() -> None:
    with pytest.raises(TypeError, match="no answer to 1 v13"):
        frame_response(FETCH, 13, 1, fetch_response(12, []))
