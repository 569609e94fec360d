"""Looking up classes and building answers for any version."""

import struct
from datetime import UTC, datetime, timedelta

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    has_field,
    known_versions,
    make,
    nested,
    request_class,
    response_class,
)
from protocol.schema import EntityClass
from protocol.writer import Piece, write_message


def written(entity: object) -> bytes:
    pieces: list[Piece] = []
    write_message(pieces, entity)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


@pytest.mark.parametrize(("api_key", "version"), ((0, 2), (0, 99), (1, -1), (999, 0), (-3, 3)))
def test_unknown_versions(api_key: int, version: int) -> None:
    for lookup in (request_class, response_class):
        with pytest.raises(KafkaError) as raised:
            lookup(api_key, version)
        assert raised.value.code is ErrorCode.unsupported_version


def test_known_versions() -> None:
    assert list(known_versions(3)) == list(range(14))
    assert list(known_versions(999)) == []


def test_make_drops_what_a_version_lacks() -> None:
    for version in known_versions(3):
        cls = response_class(3, version)
        message = make(
            cls,
            throttle_time=0,
            brokers=(),
            cluster_id="c",
            controller_id=1,
            topics=(),
            error_code=ErrorCode.none,
            cluster_authorized_operations=-(2**31),
        )
        assert has_field(cls, "cluster_id") == (version >= 2)
        assert getattr(message, "cluster_id", None) == ("c" if version >= 2 else None)


def test_make_needs_what_a_version_has() -> None:
    with pytest.raises(TypeError, match="brokers"):
        make(response_class(3, 0), topics=())


def test_nested() -> None:
    cls = request_class(1, 13)
    assert nested(cls, "topics").__name__ == "FetchTopic"
    with pytest.raises(AttributeError):
        nested(cls, "no_such_field")
    with pytest.raises(TypeError):
        nested(cls, "max_bytes")


@pytest.mark.parametrize("duration", (1500, timedelta(seconds=1.5)))
def test_durations_may_be_milliseconds(duration: int | timedelta) -> None:
    cls: EntityClass = response_class(12, 1)
    encoded = written(make(cls, throttle_time=duration, error_code=ErrorCode.none))
    assert encoded == struct.pack(">ih", 1500, 0)


@pytest.mark.parametrize(
    ("time", "time_ms"),
    (
        (None, -1),
        (1_700_000_000_123, 1_700_000_000_123),
        (datetime(1970, 1, 1, 0, 0, 1, 5000, tzinfo=UTC), 1005),
    ),
)
def test_points_in_time_may_be_milliseconds(time: object, time_ms: int) -> None:
    cls = response_class(0, 3)
    topic = nested(cls, "responses")
    partition = make(
        nested(topic, "partition_responses"),
        index=0,
        error_code=ErrorCode.none,
        base_offset=3,
        log_append_time=time,
    )
    assert written(partition) == struct.pack(">ihqq", 0, 0, 3, time_ms)


def test_none_where_the_schema_has_no_null() -> None:
    cls = response_class(3, 0)
    with pytest.raises(TypeError, match="brokers"):
        written(make(cls, brokers=None, topics=()))
    broker = nested(cls, "brokers")
    with pytest.raises(TypeError, match="host"):
        written(make(broker, node_id=1, host=None, port=1))
