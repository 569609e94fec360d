"""The interface of every metadata store: versioned keys, conditional commits, watches, sessions.

What any store promises (``tests/contract/`` checks each of these):

- A key belongs to exactly one scope. A commit touches one scope and is all or nothing; it applies
  only if every check holds. Once it returns, it is durable and every later read sees it.
- Every key written by a commit carries that commit's version. Versions grow within a scope and
  are never reused, so an unchanged version means an unchanged value, even across deletion,
  re-creation and restarts.
- Keys are non-empty text without NUL. A range lies within one depth (the number of slashes in
  its bounds) and holds only keys of that depth, in the order of their UTF-8 bytes. Stores
  disagree on where deeper keys would sort, so no caller may depend on it.
- Ephemeral keys live with a session, vanish with it, and never stand in checks or writes: they
  expire without a commit, so a condition on them would prove nothing.

Errors: ``Conflict`` (read again, then retry), ``Unavailable`` (nothing was applied; retry later),
``CommitUnknown`` (it may or may not be applied: read a key that the commit writes, then decide).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class StoreError(Exception):
    """Anything that a metadata store reports."""


class Conflict(StoreError):
    """A check did not hold; nothing was applied."""


class Unavailable(StoreError):
    """The store cannot serve this now; nothing was applied."""


class CommitUnknown(StoreError):
    """The commit may or may not have been applied."""


class SessionLost(StoreError):
    """The session has ended, and its ephemeral keys with it."""


class StoreInUse(StoreError):
    """Another process owns the store."""


class IncompatibleStore(StoreError):
    """The stored data is not in a format that this version can use."""


class Versioned(NamedTuple):
    value: bytes
    version: int


class KeyValue(NamedTuple):
    key: str
    value: bytes
    version: int


class Check(NamedTuple):
    """A condition of a commit: the key has this version, or with None is absent."""

    key: str
    version: int | None


class Put(NamedTuple):
    key: str
    value: bytes


class Delete(NamedTuple):
    """Removes the key; of an absent key it does nothing."""

    key: str


class CommitResult(NamedTuple):
    """The version that every key written by the commit now has."""

    version: int


class Change(NamedTuple):
    """A key was written, or with value None deleted."""

    key: str
    value: bytes | None
    version: int


class Gap(NamedTuple):
    """Changes were missed before this point: read again what you depend on."""


class Watch(Protocol):
    """A feed of changes. It is subscribed from the call of ``watch`` until ``close``."""

    def __aiter__(self) -> AsyncIterator[Change | Gap]: ...

    async def __anext__(self) -> Change | Gap: ...

    async def close(self) -> None:
        """End the feed: whoever waits on it sees the end of the iteration."""


class Session(Protocol):
    """Keeps ephemeral keys alive. Independent of commits; see the module's invariants."""

    @property
    def id(self) -> str: ...

    @property
    def lost(self) -> asyncio.Event:
        """Set once the session has ended, by loss or by ``close``."""

    @property
    def valid(self) -> bool:
        """Whether the session's keys certainly exist still, by the monotonic clock of this
        process: it turns False before the store can remove them, however long this process
        stood still."""

    async def put(self, key: str, value: bytes, *, scope: str) -> None:
        """Write an ephemeral key; ``Conflict`` if it exists and is not this session's own."""

    async def delete(self, key: str, *, scope: str) -> None:
        """Delete an own ephemeral key; ``Conflict`` if it exists and is not this session's."""

    async def close(self) -> None:
        """End the session and remove its keys. A second call does nothing."""


class MetadataStore(Protocol):
    async def get(self, key: str, *, scope: str) -> Versioned | None: ...

    async def ceiling(self, key: str, *, scope: str) -> KeyValue | None:
        """The smallest key of the same depth that is at or after ``key``."""

    def scan(
        self,
        start: str,
        end: str,
        *,
        scope: str,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[KeyValue]:
        """The keys in [start, end), which must have one depth; ``reverse`` from the end down.

        Read in pages. One page is consistent; a key that a concurrent commit adds, changes or
        removes while the scan is between pages may be seen in either state.
        """

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        """Apply all writes if all checks hold, else raise ``Conflict``. No key is written twice.

        If the caller is cancelled while it waits, the commit may still be applied.
        """

    def watch(self, prefix: str) -> Watch:
        """Changes of keys with this prefix, in any scope, at least once each.

        Changes of one key arrive in order. ``Gap`` stands where a slow reader missed some.
        """

    async def session(self, ttl: float) -> Session:
        """A session that ends at most ``ttl`` seconds after its holder vanishes."""

    async def close(self) -> None:
        """End all watches and sessions and release the store. A second call does nothing."""


def check_key(key: str) -> None:
    """Raise ValueError unless the key is legal."""
    if not key or "\0" in key:
        raise ValueError(f"a key must be non-empty text without NUL, got {key!r}")
    if not key.isascii():
        key.encode()  # a lone surrogate is not text: UnicodeEncodeError is a ValueError


def check_commit(scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]) -> None:
    """Raise ValueError for a commit that no store accepts."""
    check_key(scope)
    for check in checks:
        check_key(check.key)
    for write in writes:
        check_key(write.key)
    if len(writes) > 1 and len({write.key for write in writes}) != len(writes):
        raise ValueError(f"a commit in scope {scope!r} writes a key twice")


def range_depth(start: str, end: str) -> int:
    """The depth of a range; ValueError if its bounds differ in depth."""
    depth = start.count("/")
    if end.count("/") != depth:
        raise ValueError(f"range bounds {start!r} and {end!r} differ in depth")
    return depth
