"""How many connections there may be, and how fast they may come, as Kafka's settings say.

Beyond `max.connections` and `max.connection.creation.rate` nobody is accepted for a while: clients
wait in the backlog. A connection beyond what its address may have is closed; one that comes too
fast for its address' quota is closed after the time that it should have waited, so that a client
that tries again at once gains nothing.

Pure: time comes in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping

from drayd.kinds import INT32_MAX
from drayd.quota_rates import Rate, Windows
from drayd.quotas import AddressQuota


def _no_quota() -> AddressQuota | None:
    return None


class ConnectionLimits:
    def __init__(
        self,
        *,
        max_connections: int = INT32_MAX,
        max_per_address: int = INT32_MAX,
        overrides: Mapping[str, int] | None = None,
        max_per_second: int = INT32_MAX,
        windows: Windows = Windows(),  # noqa: B008  (it is immutable)
        quota: Callable[[], AddressQuota | None] = _no_quota,
    ) -> None:
        self.max_connections = max_connections
        self._max_per_address = max_per_address
        self._overrides = overrides or {}
        self._max_per_second = max_per_second
        self._rate = Rate(windows)
        self._quota = quota
        self._by_address: Counter[str] = Counter()
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= self.max_connections

    def allowed(self, address: str) -> int:
        """How many connections an address may have."""
        return self._overrides.get(address, self._max_per_address)

    def held_back_ms(self, address: str, now_ms: int) -> int:
        """0, or for how long a connection that is over its address' quota is kept before it is
        closed."""
        quota = self._quota()
        return 0 if quota is None else quota.record(address, now_ms)

    def pause_ms(self, now_ms: int) -> int:
        """Counts a connection; how long to wait before it is served."""
        if self._max_per_second == INT32_MAX:
            return 0
        self._rate.record(1, now_ms)
        return self._rate.over_ms(max(self._max_per_second, math.ulp(0.0)), now_ms)

    def take(self, address: str) -> bool:
        """False: the address has too many."""
        if self._by_address[address] >= self.allowed(address):
            if not self._by_address[address]:
                del self._by_address[address]
            return False
        self._by_address[address] += 1
        self._count += 1
        return True

    def give_back(self, address: str) -> None:
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
