"""Bounded decompression of record batches, and compression where a topic asks for a codec.

16 kB of zstd can unpack to 512 MB (correctness rule 3), so output goes into a buffer of a given
size, never beyond a cap. The first guess at the size fits common batches; one that doesn't fit
is tried again with four times as much, up to the cap, so that the memory used is in proportion
to what the batch really holds.

Snappy comes in two forms: Java and most clients write xerial's framing (a magic header, then
blocks with a length each), librdkafka writes one raw block. We write xerial's, which every client
reads, and lz4 frames of independent blocks, the only ones that Java's client reads.
"""

from enum import IntEnum
from struct import Struct

import cramjam

from protocol.writer import Buffer

# A batch may unpack to this much unless told otherwise: 128 times the usual largest batch.
DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
# Version 1, readable by version 1, as Java's writer says.
_XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES = 32 * 1024
_GZIP_DEFAULT_LEVEL = 6
_LZ4_DEFAULT_LEVEL = 9
_ZSTD_DEFAULT_LEVEL = 3
_INT32 = Struct(">i")
# What Rust's io says when a fixed-size output is full; all of cramjam's codecs pass it on.
_OUTPUT_FULL = "failed to write whole buffer"
_FIRST_GUESS_MIN_BYTES = 64 * 1024
_FIRST_GUESS_RATIO = 8
_GROWTH = 4


class Compression(IntEnum):
    """The codecs of Kafka, with their ids in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptCompression(Exception):
    """The bytes are not what the codec writes."""


class TooLarge(Exception):
    """The bytes would unpack to more than the cap."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Pack `data`. A level of None, and gzip's -1, is the codec's default; snappy has none."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            gzip_level = _GZIP_DEFAULT_LEVEL if level is None or level < 0 else level
            return bytes(cramjam.gzip.compress(data, level=gzip_level))
        case Compression.SNAPPY:
            return _xerial(memoryview(data))
        case Compression.LZ4:
            lz4_level = _LZ4_DEFAULT_LEVEL if level is None else level
            packer = cramjam.lz4.Compressor(
                level=lz4_level, content_checksum=False, block_linked=False
            )
            packer.compress(bytes(data))
            return bytes(packer.finish())
        case Compression.ZSTD:
            zstd_level = _ZSTD_DEFAULT_LEVEL if level is None else level
            return bytes(cramjam.zstd.compress(data, level=zstd_level))


def _xerial(data: memoryview) -> bytes:
    parts: list[bytes] = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def decompress(
    codec: Compression, data: Buffer, max_bytes: int, *, before: int = 0, after: int = 0
) -> tuple[bytearray, int]:
    """Unpack `data`; returns a buffer and the number of bytes unpacked.

    They start at `before` in the buffer, and at least `after` bytes of the buffer follow them,
    so that a header and padding need no second copy. Raises CorruptCompression and TooLarge.
    """
    try:
        if codec is Compression.SNAPPY:
            return _snappy(data, max_bytes, before, after)
        return _growing(codec, data, max_bytes, before, after)
    except cramjam.DecompressionError as error:
        raise CorruptCompression(f"{codec.name.lower()}: {error}") from error


def _growing(
    codec: Compression, data: Buffer, max_bytes: int, before: int, after: int
) -> tuple[bytearray, int]:
    decompress_into = {
        Compression.GZIP: cramjam.gzip.decompress_into,
        Compression.LZ4: cramjam.lz4.decompress_into,
        Compression.ZSTD: cramjam.zstd.decompress_into,
    }[codec]
    size = min(max_bytes, max(_FIRST_GUESS_MIN_BYTES, len(data) * _FIRST_GUESS_RATIO))
    while True:
        output = bytearray(before + size + after)
        try:
            with memoryview(output) as view, view[before : before + size] as body:
                return output, decompress_into(data, body)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise
        if size >= max_bytes:
            raise TooLarge(f"more than {max_bytes} bytes when decompressed")
        size = min(max_bytes, size * _GROWTH)


def _snappy(data: Buffer, max_bytes: int, before: int, after: int) -> tuple[bytearray, int]:
    blocks = _snappy_blocks(memoryview(data))
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise TooLarge(f"{total} bytes when decompressed, {max_bytes} allowed")
    output = bytearray(before + total + after)
    at = before
    with memoryview(output) as view:
        for block, size in zip(blocks, sizes, strict=True):
            with view[at : at + size] as body:
                at += cramjam.snappy.decompress_raw_into(block, body)
    return output, at - before


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return [data]
    if len(data) < _XERIAL_HEADER_SIZE:
        raise CorruptCompression("snappy: the stream header is cut off")
    blocks = []
    at = _XERIAL_HEADER_SIZE
    while at < len(data):
        if len(data) - at < _INT32.size:
            raise CorruptCompression("snappy: the length of a block is cut off")
        size = _INT32.unpack_from(data, at)[0]
        at += _INT32.size
        if not 0 <= size <= len(data) - at:
            raise CorruptCompression(f"snappy: a block of {size} bytes, {len(data) - at} are left")
        blocks.append(data[at : at + size])
        at += size
    return blocks
