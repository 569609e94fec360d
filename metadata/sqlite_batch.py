"""Which of the writes that arrived together may be applied: pure, over a view of the rows.

Commits that queue up share one transaction of the file, so that they share its sync. Each keeps
its own checks and its own version: a commit sees those admitted before it, and one whose checks
fail is left out whole. What remains of the batch is the last state of each row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata.store import Change, Check, Conflict, Delete, Put, SessionLost

Place = tuple[str, str]
"""(scope, key)"""


class Row(NamedTuple):
    """A row to be written; ``value`` None: to be deleted."""

    value: bytes | None
    version: int
    session_id: str | None


@dataclass(slots=True, eq=False)
class Write:
    """One caller's request. ``session_id`` None: a commit, else a write of that session.

    ``ends_session``: instead of ``writes``, remove all keys of the session.
    """

    scope: str
    checks: Sequence[Check]
    writes: Sequence[Put | Delete]
    future: asyncio.Future[int]
    session_id: str | None = None
    ends_session: bool = False
    version: int = 0
    changes: list[tuple[str, Change]] = field(default_factory=list)
    """(scope, change) of all that it changed."""
    error: Exception | None = None


class Batch:
    """The state of the rows after all admitted writes.

    ``stored_version`` gives a row's version before the batch, ``ephemeral`` the session of every
    ephemeral row, ``session_ids`` the open sessions.
    """

    def __init__(
        self,
        last_version: int,
        stored_version: Callable[[Place], int | None],
        ephemeral: dict[Place, str],
        session_ids: set[str],
    ) -> None:
        self.last_version = last_version
        self.rows: dict[Place, Row] = {}
        self.ended_session_ids: set[str] = set()
        self._stored_version = stored_version
        self._ephemeral = ephemeral
        self._session_ids = session_ids

    def admit(self, write: Write) -> None:
        """Add the write, or raise why not and leave the batch as it was."""
        if write.session_id is None:
            self._check_commit(write)
            self._apply(write, [(write.scope, each) for each in write.writes])
        elif write.ends_session:
            if self._is_open(write.session_id):
                owned = self._places_of(write.session_id)
                self._apply(write, [(scope, Delete(key)) for scope, key in owned])
                self.ended_session_ids.add(write.session_id)
        else:
            self._check_ephemeral(write, write.session_id)
            self._apply(write, [(write.scope, each) for each in write.writes])

    def _check_commit(self, write: Write) -> None:
        if self._ephemeral or self.rows:
            for each in (*write.checks, *write.writes):
                if self._session_of((write.scope, each.key)) is not None:
                    raise ValueError(f"{each.key!r} is ephemeral and can't stand in a commit")
        for check in write.checks:
            version = self._version((write.scope, check.key))
            if version != check.version:
                raise Conflict(f"{check.key!r} has version {version}, not {check.version}")

    def _check_ephemeral(self, write: Write, session_id: str) -> None:
        if not self._is_open(session_id):
            raise SessionLost(f"session {session_id} has ended")
        for each in write.writes:
            place = (write.scope, each.key)
            owner = self._session_of(place)
            if owner != session_id and (owner or self._version(place) is not None):
                raise Conflict(f"{each.key!r} exists and is not of session {session_id}")

    def _apply(self, write: Write, writes: list[tuple[str, Put | Delete]]) -> None:
        if writes:
            self.last_version += 1
        write.version = self.last_version
        for scope, each in writes:
            value = each.value if isinstance(each, Put) else None
            session_id = write.session_id if value is not None else None
            self.rows[scope, each.key] = Row(value, write.version, session_id)
            write.changes.append((scope, Change(each.key, value, write.version)))

    def _version(self, place: Place) -> int | None:
        row = self.rows.get(place)
        if row is None:
            return self._stored_version(place)
        return None if row.value is None else row.version

    def _session_of(self, place: Place) -> str | None:
        row = self.rows.get(place)
        return self._ephemeral.get(place) if row is None else row.session_id

    def _is_open(self, session_id: str) -> bool:
        return session_id in self._session_ids and session_id not in self.ended_session_ids

    def _places_of(self, session_id: str) -> list[Place]:
        places = {place for place, owner in self._ephemeral.items() if owner == session_id}
        places |= {place for place, row in self.rows.items() if row.session_id == session_id}
        return sorted(place for place in places if self._session_of(place) == session_id)
