"""Record batches built by hand, right or wrong in any field, independently of our own code."""

import struct
from collections.abc import Sequence

import cramjam
from crc32c import crc32c

BASE_MS = 1_700_000_000_000
NOW_MS = BASE_MS + 5_000
HOUR_MS = 3_600_000


def varint(value: int, bits: int = 64) -> bytes:
    """A zigzag varint as Kafka writes it in records."""
    rest = (value << 1 ^ value >> (bits - 1)) & (2**bits - 1)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def nullable(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    offset_delta: int = 0,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    attributes: int = 0,
    length: int | None = None,
) -> bytes:
    body = bytes((attributes,)) + varint(timestamp_delta) + varint(offset_delta)
    body += nullable(key) + nullable(value) + varint(len(headers))
    for name, content in headers:
        body += nullable(name) + nullable(content)
    return varint(len(body) if length is None else length) + body


def xerial(data: bytes, block_size: int = 32 * 1024) -> bytes:
    """Snappy as Java writes it."""
    stream = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block_size):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + block_size]))
        stream += struct.pack(">i", len(block)) + block
    return stream


def lz4(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def compressed(codec: int, data: bytes) -> bytes:
    match codec:
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            return xerial(data)
        case 3:
            return lz4(data)
        case 4:
            return bytes(cramjam.zstd.compress(data, level=1))
    return data


def batch(
    records: Sequence[bytes] = (record(),),
    *,
    codec: int = 0,
    body: bytes | None = None,
    base_offset: int = 0,
    length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = BASE_MS,
    max_timestamp: int = BASE_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
) -> bytes:
    """A batch of the given records; whatever is named is written as named."""
    checked = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    checked += compressed(codec, b"".join(records)) if body is None else body
    return (
        struct.pack(
            ">qiibI",
            base_offset,
            len(checked) + 9 if length is None else length,
            leader_epoch,
            magic,
            crc32c(checked) if crc is None else crc,
        )
        + checked
    )


def records(count: int) -> list[bytes]:
    return [record(index, value=b"value %d" % index) for index in range(count)]
