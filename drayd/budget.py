"""Memory for requests in flight, shared by all connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class _Waiting(NamedTuple):
    size: int
    when_free: Callable[[], None]


class Budget:
    """Bytes that may be held at once. Whoever gets none waits in line and is called back when
    it is their turn; nobody goes past the line, or large requests would never get theirs."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[_Waiting] = deque()
        self._turn = False
        """The next to ask is the one whose turn it is."""
        self.used = 0

    def acquire(self, size: int, when_free: Callable[[], None]) -> bool:
        """True: taken. False: `when_free` is called once, later; ask for the same size then. A
        request larger than the whole budget gets through when nothing else is in flight."""
        first_in_line = self._turn or not self._waiting
        self._turn = False
        if first_in_line and self._fits(size):
            self.used += size
            return True
        self._waiting.append(_Waiting(size, when_free))
        return False

    @property
    def in_line(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def hold(self, size: int) -> None:
        """Takes it, whether it is there or not: for what exists already."""
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size
        self._serve_line()

    def forget(self, when_free: Callable[[], None]) -> None:
        """Takes one who waits out of the line."""
        self._waiting = deque(each for each in self._waiting if each.when_free != when_free)
        self._serve_line()

    def _serve_line(self) -> None:
        while self._waiting and self._fits(self._waiting[0].size):
            _, when_free = self._waiting.popleft()
            self._turn = True
            when_free()
            self._turn = False

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self._max_bytes
