"""Record batches (magic 2) to and from readable mappings.

Written by hand, so that a scenario can also send what no client library would: wrong checksums,
counts, lengths and magics. See README.md for the fields.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import codec as compression
from crc32c import crc32c

BASE_TIMESTAMP_MS = 1_700_000_000_000
"""The time of records that name none; fixed, so that recorded answers stay the same."""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def text(data: bytes) -> str:
    """Bytes as text: what is printable ASCII as it is, the rest escaped."""
    return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in data)


def encode(value: Any) -> bytes:
    """`{batch: {…}}`, a list of them, or text to send as it is."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping):
        return _batch(value["batch"])
    return b"".join(_batch(each["batch"]) for each in value)


def _batch(about: Mapping[str, Any]) -> bytes:
    known = {
        *("records", "count", "last_offset_delta", "base_offset", "attributes", "compression"),
        *("timestamp_type", "transactional", "control", "base_timestamp", "max_timestamp"),
        *("producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch", "magic"),
        *("length", "corrupt", "cut"),
    }
    if not known.issuperset(about):
        raise ValueError(f"a batch has no {sorted(set(about) - known)}")
    records: Sequence[Any] = about.get("records", [])
    base_ms = about.get("base_timestamp", BASE_TIMESTAMP_MS)
    times = [each.get("timestamp", base_ms) for each in records if isinstance(each, Mapping)]
    body = b"".join(_record(i, each, base_ms) for i, each in enumerate(records))
    codec = _CODECS.index(about.get("compression", "none"))
    if codec:
        body = getattr(compression, f"{_CODECS[codec]}_encode")(body)
    if about.get("corrupt") == "payload":
        body = b"\xff" * len(body)
    attributes = about.get(
        "attributes",
        codec
        | (_LOG_APPEND_TIME if about.get("timestamp_type") == "LogAppendTime" else 0)
        | (_TRANSACTIONAL if about.get("transactional") else 0)
        | (_CONTROL if about.get("control") else 0),
    )
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        about.get("last_offset_delta", len(records) - 1),
        base_ms,
        about.get("max_timestamp", max(times, default=base_ms)),
        about.get("producer_id", -1),
        about.get("producer_epoch", -1),
        about.get("base_sequence", -1),
        about.get("count", len(records)),
    )
    tail += bytes(body)
    crc = crc32c(tail) ^ (1 if about.get("corrupt") == "crc" else 0)
    head = struct.pack(
        ">qiibI",
        about.get("base_offset", 0),
        about.get("length", len(tail) + 9),
        about.get("partition_leader_epoch", -1),
        about.get("magic", 2),
        crc,
    )
    whole: bytes = head + tail
    cut: int = about.get("cut", 0)
    return whole[: len(whole) - cut]


def _record(index: int, record: Any, base_ms: int) -> bytes:
    if isinstance(record, str):
        record = {"value": record}
    body = bytes([record.get("attributes", 0)])
    body += _varint(record.get("timestamp", base_ms) - base_ms)
    body += _varint(record.get("offset_delta", index))
    body += _blob(record.get("key")) + _blob(record.get("value"))
    headers = record.get("headers", {})
    body += _varint(len(headers))
    for name, value in headers.items():
        body += _blob(name) + _blob(value)
    return _varint(record.get("length", len(body))) + body


def _blob(value: Any) -> bytes:
    if value is None:
        return _varint(-1)
    if isinstance(value, Mapping):
        data = str(value["repeat"]).encode() * int(value["times"])
    else:
        data = str(value).encode()
    return _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def decode(data: bytes) -> list[dict[str, Any]]:
    """The batches; a batch that is cut off at the end is `{partial: true}`."""
    found: list[dict[str, Any]] = []
    at = 0
    while at < len(data):
        size = struct.unpack_from(">i", data, at + 8)[0] + 12 if at + 12 <= len(data) else 1 << 62
        if at + size > len(data):
            found.append({"partial": True})
            break
        found.append(_decoded(data[at : at + size]))
        at += size
    return found


def _decoded(data: bytes) -> dict[str, Any]:
    if len(data) < _HEADER.size or data[16] != 2:
        return {"hex": data.hex()}
    fields = _HEADER.unpack_from(data)
    base, _, leader_epoch, _, crc, attributes, last_delta, first_ms, max_ms = fields[:9]
    producer_id, producer_epoch, base_sequence, count = fields[9:]
    about: dict[str, Any] = {
        "base_offset": base,
        "last_offset_delta": last_delta,
        "partition_leader_epoch": leader_epoch,
        "compression": _CODECS[attributes & 7],
        "timestamp_type": "LogAppendTime" if attributes & _LOG_APPEND_TIME else "CreateTime",
        "transactional": bool(attributes & _TRANSACTIONAL),
        "control": bool(attributes & _CONTROL),
        "delete_horizon": bool(attributes & _DELETE_HORIZON),
        "base_timestamp": first_ms,
        "max_timestamp": max_ms,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "crc_ok": crc == crc32c(data[21:]),
    }
    body = data[_HEADER.size :]
    if attributes & 7:
        body = getattr(compression, f"{_CODECS[attributes & 7]}_decode")(body)
    about["records"] = _records(bytes(body), count, base, first_ms)
    return about


def _records(body: bytes, count: int, base_offset: int, base_ms: int) -> list[dict[str, Any]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7

    def blob() -> str | None:
        nonlocal at
        size = varint()
        if size < 0:
            return None
        at += size
        piece = body[at - size : at]
        return text(piece) if size <= 200 else f"{text(piece[:20])}… ({size} bytes)"

    found = []
    for _ in range(count):
        varint()  # length
        at += 1  # attributes
        time, offset = base_ms + varint(), base_offset + varint()
        record: dict[str, Any] = {
            "offset": offset,
            "timestamp": time,
            "key": blob(),
            "value": blob(),
        }
        headers = [[blob(), blob()] for _ in range(varint())]
        if headers:
            record["headers"] = headers
        found.append(record)
    return found
