"""The last view of a frame may go in another thread, at any moment."""

from __future__ import annotations

from drayd.arena import ARENA_BYTES, FrameMemory, _Arena


class Interrupted(FrameMemory):
    """Another thread lets go of the last view while an arena is being put aside."""

    def __init__(self) -> None:
        super().__init__()
        self.last_views: list[memoryview] = []

    def _recycle(self, arena: _Arena) -> None:
        self.last_views.clear()
        super()._recycle(arena)


def test_an_arena_that_is_given_up_twice_is_given_out_once() -> None:
    memory = Interrupted()
    memory.last_views.append(memory.frame(ARENA_BYTES))
    frames = [memory.frame(ARENA_BYTES) for _ in range(3)]
    for number, frame in enumerate(frames):
        frame[:1000] = bytes([number]) * 1000
    for number, frame in enumerate(frames):
        assert frame[:1000] == bytes([number]) * 1000
