"""Memory for requests in flight, shared by all connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Budget:
    """Bytes that may be held at once. Whoever gets none is called back when some are free."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[Callable[[], None]] = deque()
        self.used = 0

    def acquire(self, size: int, when_free: Callable[[], None]) -> bool:
        """True: taken. False: `when_free` is called once, later; ask again then. A request
        larger than the whole budget gets through when nothing else is in flight."""
        if self.used and self.used + size > self._max_bytes:
            self._waiting.append(when_free)
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        self.used -= size
        # Each one asks again, and waits again if it is still too much.
        for _ in range(len(self._waiting)):
            if self.used >= self._max_bytes:
                break
            self._waiting.popleft()()

    def forget(self, when_free: Callable[[], None]) -> None:
        if when_free in self._waiting:
            self._waiting.remove(when_free)
