"""A batch in the codec that its topic asks for (`compression.type`), whatever its producer chose.

Only the records are packed anew: header fields, record bytes and their order stay, so offsets,
timestamps and the producer's sequence numbers are those that were checked.
"""

from struct import Struct

from crc32c import crc32c

from protocol.batch import HEADER_SIZE, AcceptedBatch, InvalidBatch, parse_header
from protocol.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from protocol.errors import ErrorCode

_LENGTH = Struct(">i")
_LENGTH_AT = 8
_LENGTH_COUNTS_FROM = 12
_CRC = Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_CODEC_MASK = 0x07


def recompressed(
    accepted: AcceptedBatch,
    codec: Compression,
    level: int | None,
    *,
    max_message_bytes: int,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> AcceptedBatch:
    """The batch packed with `codec`, itself if it is already.

    Raises InvalidBatch(MESSAGE_TOO_LARGE) where the result is larger than the topic allows, as
    Kafka does: unpacking may make it so.
    """
    if accepted.compression == codec:
        return accepted
    records = accepted.view[HEADER_SIZE:]
    if accepted.compression is not Compression.NONE:
        unpacked, size = decompress(accepted.compression, records, max_decompressed_bytes)
        records = memoryview(unpacked)[:size]
    packed = compress(codec, records, level)
    size = HEADER_SIZE + len(packed)
    if size > max_message_bytes:
        raise InvalidBatch(
            ErrorCode.message_too_large,
            f"a batch of {size} bytes once its compression is {codec.name.lower()},"
            f" {max_message_bytes} are allowed",
        )
    batch = bytearray(size)
    batch[:HEADER_SIZE] = accepted.view[:HEADER_SIZE]
    batch[HEADER_SIZE:] = packed
    attributes = parse_header(accepted.view).attributes & ~_CODEC_MASK | codec
    _LENGTH.pack_into(batch, _LENGTH_AT, size - _LENGTH_COUNTS_FROM)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return accepted._replace(view=memoryview(batch), size=size, compression=codec)
