"""Client quotas, enforced: who may send, read, ask, change and connect how fast.

`ClientQuotas` is what handlers and the dispatcher know. Each kind of limit is None while nobody has
one, so that a broker without quotas pays a look at None. Which limit counts for a client is
Kafka's order: the most specific entity of its user and client id. All clients that one limit
of a user covers share it; a limit of a client id is shared by all users of that id.

A client over its limit is answered at once, told how long to wait, and not read from for that long
(`Connection.mute`). Time comes in as milliseconds of a clock that doesn't go back.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from drayd.quota_entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from drayd.quota_rates import Rate, TokenBucket, Windows
from metadata.quotas import Alteration, Quotas
from metadata.store import MetadataStore
from metadata.values import Quota
from protocol.errors import ErrorCode, KafkaError

ANONYMOUS = "ANONYMOUS"
MAX_METERS = 10_000
"""Clients choose their ids, so no more of them are measured at a time: the longest unused goes."""

M = TypeVar("M", Rate, TokenBucket)
_Default = None
_Name = str | None
_Client = tuple[str, str]


def _counts(quota: Quota, key: str) -> bool:
    """Kafka stores infinity and NaN, neither of which limits anything."""
    return math.isfinite(quota.limits.get(key, math.inf))


class Metered(NamedTuple, Generic[M]):
    """A limit and what was measured of those who share it."""

    limit: float
    meter: M


class _Kind(Generic[M]):
    """One kind of limit of users and client ids."""

    def __init__(self, make: Callable[[], M]) -> None:
        self._make: Callable[[], M] = make
        self._limits: dict[tuple[tuple[str, _Name], ...], float] = {}
        self._meters: OrderedDict[_Client, M] = OrderedDict()
        self._found: dict[_Client, Metered[M] | None] = {}

    def use(self, quotas: Sequence[Quota], key: str) -> bool:
        """Takes these limits; whether there is any. What was measured stays."""
        self._limits = {
            tuple(sorted(quota.entity.items())): quota.limits[key]
            for quota in quotas
            if _counts(quota, key)
        }
        self._found.clear()
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> Metered[M] | None:
        """None: no limit."""
        asked = (user, client_id)
        try:
            return self._found[asked]
        except KeyError:
            pass
        if len(self._found) >= MAX_METERS:
            self._found.clear()
        found = self._found[asked] = self._look(user, client_id)
        return found

    def _look(self, user: str, client_id: str) -> Metered[M] | None:
        both, only_user, only_client = (user, client_id), (user, ""), ("", client_id)
        for entity, sharing in (
            (((CLIENT_ID, client_id), (USER, user)), both),
            (((CLIENT_ID, _Default), (USER, user)), both),
            (((USER, user),), only_user),
            (((CLIENT_ID, client_id), (USER, _Default)), both),
            (((CLIENT_ID, _Default), (USER, _Default)), both),
            (((USER, _Default),), only_user),
            (((CLIENT_ID, client_id),), only_client),
            (((CLIENT_ID, _Default),), only_client),
        ):
            limit = self._limits.get(entity)
            if limit is not None:
                return Metered(limit, self._meter(sharing))
        return None

    def _meter(self, sharing: _Client) -> M:
        meter = self._meters.get(sharing)
        if meter is None:
            meter = self._meters[sharing] = self._make()
            if len(self._meters) > MAX_METERS:
                self._meters.popitem(last=False)
                # Those who share a limit must go on to share a meter.
                self._found.clear()
        else:
            self._meters.move_to_end(sharing)
        return meter


class RateQuota(_Kind[Rate]):
    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Counts it; for how many milliseconds that is too much."""
        found = self.find(user, client_id)
        if found is None:
            return 0
        found.meter.record(value, now_ms)
        return found.meter.over_ms(found.limit, now_ms)

    def take_back(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """What was recorded didn't happen after all."""
        found = self.find(user, client_id)
        if found is not None:
            found.meter.record(-value, now_ms)


class Mutations:
    """The changes of one request. Strict: what is over the limit is refused; otherwise it is
    done, and the client has to wait afterwards."""

    def __init__(self, found: Metered[TokenBucket] | None, *, strict: bool, now_ms: int) -> None:
        self._found = found
        self._strict = strict
        self._now_ms = now_ms
        self.throttle_ms = 0

    def take(self, count: int) -> None:
        """KafkaError(THROTTLING_QUOTA_EXCEEDED) if the client must wait first."""
        if self._found is None:
            return
        limit, bucket = self._found
        if self._strict:
            over_ms = bucket.over_ms(limit, self._now_ms)
            if over_ms:
                self.throttle_ms = max(self.throttle_ms, over_ms)
                raise KafkaError(ErrorCode.throttling_quota_exceeded)
            bucket.take(count, limit, self._now_ms)
        else:
            bucket.take(count, limit, self._now_ms)
            self.throttle_ms = max(self.throttle_ms, bucket.over_ms(limit, self._now_ms))


class AddressQuota:
    """Connections per second of an address, or of each address that has no limit of its own."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limits: dict[_Name, float] = {}
        self._meters: OrderedDict[str, Rate] = OrderedDict()

    def use(self, quotas: Sequence[Quota]) -> bool:
        self._limits = {
            quota.entity[IP]: quota.limits[CONNECTION_CREATION_RATE]
            for quota in quotas
            if _counts(quota, CONNECTION_CREATION_RATE)
        }
        return bool(self._limits)

    def record(self, address: str, now_ms: int) -> int:
        """For how many milliseconds this connection is too much; then it wasn't counted."""
        limit = self._limits.get(address, self._limits.get(_Default))
        if limit is None:
            return 0
        meter = self._meters.get(address)
        if meter is None:
            meter = self._meters[address] = Rate(self._windows)
            if len(self._meters) > MAX_METERS:
                self._meters.popitem(last=False)
        else:
            self._meters.move_to_end(address)
        meter.record(1, now_ms)
        over_ms = meter.over_ms(limit, now_ms)
        if over_ms:
            meter.record(-1, now_ms)
        # Kafka: no longer than a window.
        return min(over_ms, self._windows.window_ms)


class ClientQuotas:
    def __init__(self, store: MetadataStore, windows: Windows, clock_ms: Callable[[], int]) -> None:
        self.windows = windows
        self.clock_ms = clock_ms
        self._stored = Quotas(store, self._use)
        self._produce = RateQuota(lambda: Rate(windows))
        self._fetch = RateQuota(lambda: Rate(windows))
        self._request = RateQuota(lambda: Rate(windows))
        self._mutation: _Kind[TokenBucket] = _Kind(lambda: TokenBucket(windows))
        self._address = AddressQuota(windows)
        self.produce: RateQuota | None = None
        self.fetch: RateQuota | None = None
        self.request: RateQuota | None = None
        self.mutation: _Kind[TokenBucket] | None = None
        self.connections: AddressQuota | None = None

    def stored(self) -> list[Quota]:
        return self._stored.all()

    async def load(self) -> None:
        await self._stored.load()

    async def follow(self) -> None:
        await self._stored.follow()

    async def alter(self, alterations: Sequence[Alteration]) -> None:
        await self._stored.alter(alterations)

    def _use(self) -> None:
        quotas = self._stored.all()
        self.produce = self._produce if self._produce.use(quotas, PRODUCER_BYTE_RATE) else None
        self.fetch = self._fetch if self._fetch.use(quotas, CONSUMER_BYTE_RATE) else None
        self.request = self._request if self._request.use(quotas, REQUEST_PERCENTAGE) else None
        self.mutation = (
            self._mutation if self._mutation.use(quotas, CONTROLLER_MUTATION_RATE) else None
        )
        self.connections = self._address if self._address.use(quotas) else None

    # -- what requests ask -------------------------------------------------------------------

    def record_request(self, user: str, client_id: str, seconds: float) -> int:
        """Time of ours that a request took, against `request_percentage`."""
        if self.request is None:
            return 0
        over_ms = self.request.record(user, client_id, seconds * 100, self.clock_ms())
        # Kafka: no longer than a window, so that a client isn't held up for long by one request.
        return min(over_ms, self.windows.window_ms)

    def record_produce(self, user: str, client_id: str, size: int) -> int:
        if self.produce is None:
            return 0
        return self.produce.record(user, client_id, size, self.clock_ms())

    def record_fetch(self, user: str, client_id: str, size: int) -> int:
        if self.fetch is None:
            return 0
        return self.fetch.record(user, client_id, size, self.clock_ms())

    def take_back_fetch(self, user: str, client_id: str, size: int) -> None:
        if self.fetch is not None:
            self.fetch.take_back(user, client_id, size, self.clock_ms())

    def fetch_max_bytes(self, user: str, client_id: str, max_bytes: int) -> int:
        """No more than the limit lets through at once if nothing was read lately: more would be
        held back for ever."""
        found = None if self.fetch is None else self.fetch.find(user, client_id)
        if found is None:
            return max_bytes
        windows = self.windows
        return min(max_bytes, int(found.limit * (windows.samples - 1) * windows.window_ms / 1000))

    def mutations(self, user: str, client_id: str, *, strict: bool) -> Mutations:
        found = None if self.mutation is None else self.mutation.find(user, client_id)
        return Mutations(found, strict=strict, now_ms=self.clock_ms())
