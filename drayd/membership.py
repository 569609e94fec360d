"""This broker's place in the cluster: its session, and its record that lives with the session.

Leases are given to a registration, not to a broker: whoever finds that a registration's record is
gone may take its leases. So a broker whose session was lost registers anew under another name and
has to take its own leases again; until then it holds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

from drayd.logs import Logger
from metadata import keys
from metadata.groups import Holder
from metadata.store import MetadataStore, Session, StoreError
from metadata.values import Broker, encode

log = Logger(__name__)

SESSION_TTL_S = 10.0
RETRY_S = 0.5


class Membership:
    def __init__(
        self, store: MetadataStore, broker_id: int, *, ttl_s: float = SESSION_TTL_S
    ) -> None:
        self.broker_id = broker_id
        self._store = store
        self._ttl_s = ttl_s
        self._session: Session | None = None
        self._registration = ""
        self._describe: Callable[[str], Broker] | None = None

    @property
    def holder(self) -> Holder | None:
        """What leases are given to now; None while this broker can't be sure that it is still
        registered. Who holds a lease asks again right before it answers."""
        session = self._session
        if session is None or not session.valid:
            return None
        return Holder(self.broker_id, self._registration)

    async def join(self, describe: Callable[[str], Broker]) -> None:
        """Registers; `describe` makes the broker's record of a registration."""
        self._describe = describe
        registration = uuid4().hex
        session = await self._store.session(self._ttl_s)
        try:
            await session.put(
                keys.broker(self.broker_id),
                encode(describe(registration)),
                scope=keys.CLUSTER_SCOPE,
            )
        except BaseException:
            await session.close()
            raise
        self._session, self._registration = session, registration

    async def run(self) -> None:
        """Registers again whenever the session is lost; runs until cancelled. `join` first."""
        assert self._describe is not None
        while self._session is not None:
            await self._session.lost.wait()
            log.warning("the broker's session was lost; it registers again")
            while True:
                try:
                    await self.join(self._describe)
                    break
                except StoreError as error:
                    log.warning("the broker can't register", error=str(error))
                    await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
