"""A quick walk over batches whose records are built alike.

Telemetry, fixed-size messages and most load tests send records of one size. Then whole runs of them
can be checked at once, column by column: one record is taken apart, and the bytes that give the
others their structure must equal its own. Where the sizes vary this gives up early, and the walk
in `records` takes over; it never accepts what that walk would refuse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_RECORDS = 64
_MIN_AVERAGE_RUN = 16
_FREE_RUNS = 4
_MORE = 0x80
_SEVEN_BITS = 0x7F
_MAX_TIME_BYTES = 8


class Times(NamedTuple):
    """The records' timestamps, and which of them have no key."""

    timestamps_ms: NDArray[np.int64]
    without_key: list[int]


class _Layout(NamedTuple):
    """How one record is built; columns are byte positions from its beginning."""

    size: int
    fixed: list[int]
    """Columns of the lengths and of the number of headers."""
    time: range
    offset: range
    has_key: bool


def walk_uniform(batch: memoryview, start: int, count: int, base_timestamp_ms: int) -> Times | None:
    """None: not uniform, or not as it should be; the careful walk has to decide."""
    data = np.frombuffer(batch, np.uint8)
    timestamps = np.empty(count, np.int64)
    without_key: list[int] = []
    at, index, runs = start, 0, 0
    while index < count:
        runs += 1
        if runs > _FREE_RUNS and index < (runs - 1) * _MIN_AVERAGE_RUN:
            return None
        layout = _layout(batch, at)
        if layout is None:
            return None
        # One more byte of offset delta from here on would be another layout.
        same_width = 1 << (7 * len(layout.offset) - 1)
        most = min(count - index, (len(batch) - at) // layout.size, same_width - index)
        if most <= 0:
            return None
        rows = data[at : at + most * layout.size].reshape(most, layout.size)
        alike = _alike(rows, layout, index)
        length = most if alike.all() else int(alike.argmin())
        if not length:
            return None
        deltas = _decode(rows[:length], layout.time)
        timestamps[index : index + length] = deltas + base_timestamp_ms
        if not layout.has_key:
            without_key.extend(range(index, index + length))
        at += length * layout.size
        index += length
    return Times(timestamps, without_key) if at == len(batch) else None


def _layout(batch: memoryview, at: int) -> _Layout | None:
    """Takes the record at `at` apart; None if it has headers or isn't well-formed."""
    begin = at
    size, at = _varint(batch, at)
    end = at + size
    if size < 1 or end > len(batch):
        return None
    fixed = list(range(at - begin))
    at += 1
    time_from = at
    _, at = _varint(batch, at)
    offset_from = at
    _, at = _varint(batch, at)
    time, offset = (
        range(time_from - begin, offset_from - begin),
        range(offset_from - begin, at - begin),
    )
    has_key = True
    for part in ("key", "value"):
        length_from = at
        length, at = _varint(batch, at)
        if length < -1 or at > end:
            return None
        fixed.extend(range(length_from - begin, at - begin))
        if length > 0:
            at += length
        elif length == -1 and part == "key":
            has_key = False
    if at != end - 1 or batch[at] != 0 or len(time) > _MAX_TIME_BYTES:
        return None
    fixed.append(at - begin)
    return _Layout(end - begin, fixed, time, offset, has_key)


def _varint(batch: memoryview, at: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes; beyond the end or longer it yields (-2, end), which no
    caller takes for a length."""
    value = shift = 0
    for position in range(at, min(at + 10, len(batch))):
        byte = batch[position]
        value |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if byte < _MORE:
            if byte == 0 and position > at:
                break  # longer than it has to be
            return (value >> 1) ^ -(value & 1), position + 1
    return -2, len(batch)


def _alike(rows: NDArray[np.uint8], layout: _Layout, index: int) -> NDArray[np.bool_]:
    """Which rows have the first one's structure and the offset delta that they should have."""
    alike: NDArray[np.bool_] = (rows[:, layout.fixed] == rows[0, layout.fixed]).all(axis=1)
    for number, column in enumerate(layout.time):
        more = number < len(layout.time) - 1
        alike &= (rows[:, column] >= _MORE) == more
    zigzag = 2 * np.arange(index, index + len(rows), dtype=np.int64)
    for number, column in enumerate(layout.offset):
        expected = (zigzag >> (7 * number)) & _SEVEN_BITS
        if number < len(layout.offset) - 1:
            expected |= _MORE
        alike &= rows[:, column] == expected
    return alike


def _decode(rows: NDArray[np.uint8], columns: range) -> NDArray[np.int64]:
    value = np.zeros(len(rows), np.int64)
    for number, column in enumerate(columns):
        value |= (rows[:, column].astype(np.int64) & _SEVEN_BITS) << (7 * number)
    return (value >> 1) ^ -(value & 1)
