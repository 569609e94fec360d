"""Frames must never share bytes while anybody can see them, and memory must come back."""

from __future__ import annotations

import queue
import random
import threading

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


def test_the_last_view_may_be_dropped_by_any_thread() -> None:
    memory = FrameMemory()
    given: queue.SimpleQueue[tuple[int, memoryview] | None] = queue.SimpleQueue()
    wrong: list[int] = []

    def consume() -> None:
        while (item := given.get()) is not None:
            value, part = item
            if part != bytes([value]) * len(part):
                wrong.append(value)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(400):
        frame = memory.frame(ARENA_BYTES // 4)
        frame[:4096] = bytes([number % 251]) * 4096
        given.put((number % 251, frame[:4096]))
        del frame
    for _ in threads:
        given.put(None)
    for thread in threads:
        thread.join()
    assert not wrong
