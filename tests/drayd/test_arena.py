"""Frames must never share bytes while anybody can see them, and memory must come back."""

from __future__ import annotations

import random

from drayd.arena import ARENA_BYTES, FROM_BYTES, MAX_FREE, FrameMemory


def test_frames_are_writable_and_apart() -> None:
    memory = FrameMemory()
    frames = [memory.frame(size) for size in (10, FROM_BYTES, 1_000_001, ARENA_BYTES, 1_000_001)]
    for number, frame in enumerate(frames):
        frame[:] = bytes([number]) * len(frame)
    for number, frame in enumerate(frames):
        assert frame == bytes([number]) * len(frame)


def test_a_slice_keeps_its_bytes_when_its_frame_is_gone() -> None:
    memory = FrameMemory()
    kept = []
    choose = random.Random(1)
    for number in range(200):
        frame = memory.frame(choose.randrange(FROM_BYTES, 2_000_000))
        frame[:] = bytes([number % 251]) * len(frame)
        kept.append((number % 251, frame[1000:2000][5:25]))
        del frame
        if len(kept) > 20:
            kept.pop(choose.randrange(len(kept)))
    assert all(part == bytes([value]) * 20 for value, part in kept)


def test_an_arena_is_used_again_when_its_last_view_is_gone() -> None:
    memory = FrameMemory()
    for _ in range(1000):
        memory.frame(ARENA_BYTES // 2)[:10] = bytes(10)
    # Nothing was alive longer than a moment: two arenas were enough for 8 GB.
    assert len(memory._free) <= 2


def test_few_free_arenas_are_kept() -> None:
    memory = FrameMemory()
    frames = [memory.frame(ARENA_BYTES) for _ in range(MAX_FREE + 6)]
    frames.clear()
    memory.frame(FROM_BYTES)
    assert len(memory._free) <= MAX_FREE
