"""How fast something happens, measured as Apache Kafka does, so that limits mean the same.

`Rate` counts over the last `samples` windows and one that overlaps them. Before that much time
has passed it assumes that nothing happened earlier, so a client may begin with a burst.
`TokenBucket` fills at a rate up to a burst, and may be overdrawn once.

Pure: time comes in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

INT32_MAX = 2**31 - 1


class Windows(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`."""

    samples: int = 11
    window_ms: int = 1000


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class Rate:
    """Events of some size per second."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.window_ms:
            samples.append(_Sample(now_ms, now_ms))
            if len(samples) > self._windows.samples + 1:
                samples.popleft()
        samples[-1].value += value
        samples[-1].last_ms = now_ms

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is taken over."""
        samples, windows = self._samples, self._windows
        keep_ms = windows.samples * windows.window_ms
        # Samples that overlap the time we look at are kept, though they began before it.
        while samples and now_ms - samples[0].last_ms >= keep_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = windows.samples - 1 - elapsed_ms // windows.window_ms
        if missing > 0:
            elapsed_ms += missing * windows.window_ms
        return max(elapsed_ms, windows.window_ms)

    def per_second(self, now_ms: int) -> float:
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(sample.value for sample in self._samples) * 1000 / elapsed_ms

    def over_ms(self, limit: float, now_ms: int) -> int:
        """For how long nothing more may happen until the rate is back at its limit."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return min(round((rate - limit) / limit * self.elapsed_ms(now_ms)), INT32_MAX)


class TokenBucket:
    """What is taken comes back at `limit` a second; when full it holds what all windows give."""

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = float("inf")
        self._last_ms = 0

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = self._windows.samples * self._windows.window_ms / 1000 * limit
        passed_ms = max(now_ms - self._last_ms, 0)
        self._last_ms = now_ms
        self._tokens = min(burst, self._tokens + limit * passed_ms / 1000)
        return self._tokens

    def take(self, tokens: float, limit: float, now_ms: int) -> None:
        """Takes them, be they there or not."""
        self._tokens = self._refill(limit, now_ms) - tokens

    def over_ms(self, limit: float, now_ms: int) -> int:
        """Until nothing is owed any more; 0: something may be taken."""
        tokens = self._refill(limit, now_ms)
        return 0 if tokens >= 0 else min(round(-tokens * 1000 / limit), INT32_MAX)
