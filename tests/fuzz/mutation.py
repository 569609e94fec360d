"""Mutations of bytes that start out well-formed.

`DRAY_FUZZ_EXAMPLES` raises the number of examples of every fuzz test that uses `fuzzing`, for a
long run: `DRAY_FUZZ_EXAMPLES=1000000 pytest tests/fuzz`.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_INTERESTING = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
)


def fuzzing(examples: int) -> settings:
    """Settings for so many examples, or as many as the environment asks for."""
    wanted = os.environ.get("DRAY_FUZZ_EXAMPLES")
    return settings(
        max_examples=int(wanted) if wanted else examples,
        deadline=None,
        # A short run is the same everywhere; a long one looks for something new.
        derandomize=wanted is None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@st.composite
def mutated(draw: st.DrawFn, original: bytes, changes: int = 4) -> bytes:
    """The bytes with a few of them overwritten, inserted, removed or cut off."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, changes))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(_INTERESTING) | st.binary(min_size=1, max_size=4))
        match draw(st.integers(0, 3)):
            case 0:
                data[at : at + len(piece)] = piece
            case 1:
                data[at:at] = piece
            case 2:
                del data[at : at + len(piece)]
            case 3:
                del data[at:]
    return bytes(data)
