"""Small input that unpacks to much, and a run that shows how much memory it takes.

`python -m tests.protocol.bomb` prints by how many KiB the peak grows with a cap of 16 MiB.
"""

import resource
import sys

from protocol.compression import Compression, TooLarge, decompress

CAP_BYTES = 16 * 1024 * 1024


def zstd_bomb(blocks: int) -> bytes:
    """A frame of blocks of 128 KiB, each one byte repeated: four bytes of input a block."""
    size = 128 * 1024
    frame = b"\x28\xb5\x2f\xfd\x00\x58"
    for number in range(blocks):
        last = number == blocks - 1
        frame += (size << 3 | 1 << 1 | last).to_bytes(3, "little") + b"x"
    return frame


def snappy_bomb() -> bytes:
    """A raw block that claims to unpack to 4 GiB."""
    return b"\xff\xff\xff\xff\x0f" + b"\x00x"


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    bombs = ((Compression.ZSTD, zstd_bomb(4096)), (Compression.SNAPPY, snappy_bomb()))
    before = peak_kib()
    for codec, bomb in bombs:
        try:
            decompress(codec, bomb, CAP_BYTES)
        except TooLarge:
            continue
        sys.exit(f"{codec.name} was let through")
    sys.stdout.write(f"{peak_kib() - before}\n")


if __name__ == "__main__":
    main()
