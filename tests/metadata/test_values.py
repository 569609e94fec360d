"""Values: what is written is read, by this version and by later ones."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata import values
from metadata.values import (
    Garbage,
    IndexEntry,
    Marker,
    Point,
    ProducerBatch,
    ProducerState,
    Run,
    StreamHead,
    StreamRef,
    Topic,
    UnknownFormat,
    WalObject,
    decode,
    encode,
)

KINDS = [
    kind
    for kind in vars(values).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
]
INT = st.integers(-(2**63), 2**63 - 1)


def of(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    return st.builds(kind, **{name: FIELDS[str(t)] for name, t in kind.__annotations__.items()})


REFS = st.builds(StreamRef, st.integers(0, 2**64 - 1), st.integers(0, 99_999))
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "int": INT,
    "str": st.text(),
    "UUID": st.uuids(),
    "dict[str, str]": st.dictionaries(st.text(), st.text()),
    "dict[str, str | None]": st.dictionaries(st.text(), st.none() | st.text()),
    "dict[str, float]": st.dictionaries(st.text(), st.floats(allow_nan=False)),
    "tuple[int, ...]": st.lists(st.integers(0, 2**64 - 1)).map(tuple),
    "tuple[StreamRef, ...]": st.lists(REFS).map(tuple),
    "tuple[Run, ...]": st.lists(st.builds(Run, INT, INT, INT)).map(tuple),
    "tuple[Point, ...]": st.lists(st.builds(Point, INT, INT)).map(tuple),
    "tuple[ProducerBatch, ...]": st.lists(st.builds(ProducerBatch, INT, INT, INT)).map(tuple),
}


@given(st.sampled_from(KINDS).flatmap(of))
def test_every_value_is_read_as_it_was_written(value: msgspec.Struct) -> None:
    assert decode(type(value), encode(value)) == value


def test_there_are_kinds_to_test() -> None:
    assert {Topic, StreamHead, IndexEntry, ProducerState, Marker, WalObject, Garbage} < set(KINDS)


def test_a_value_of_a_newer_format_is_refused() -> None:
    data = encode(Garbage("path", 1))
    with pytest.raises(UnknownFormat, match="Garbage"):
        decode(Garbage, b"\x02" + data[1:])
    with pytest.raises(UnknownFormat):
        decode(Garbage, b"")


def test_a_field_that_is_added_later_has_its_default() -> None:
    written = encode(StreamHead(UUID(int=1), 2, 3, 4))
    short = values.encode(msgspec.convert((UUID(int=1), 2, 3, 4), _ShortHead))
    assert decode(StreamHead, short) == StreamHead(UUID(int=1), 2, 3, 4)
    assert decode(_ShortHead, written) == _ShortHead(UUID(int=1), 2, 3, 4)


class _ShortHead(msgspec.Struct, array_like=True, frozen=True):
    """A head as an older version knows it."""

    topic_id: UUID
    partition: int
    log_start: int
    log_end: int


@pytest.mark.parametrize("data", [b"\x01", b"\x01\x00", b"\x01\x91\x01", b"\x01\xff" * 9])
def test_damage_is_an_error_and_no_value(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(Garbage, data)
