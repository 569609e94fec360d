"""The object store as the rest of Dray sees it: whole objects, written once, read by range.

Invariants that every implementation keeps (`tests/contract/test_object_store.py`):

- an object is created by one `put` or not at all, and is never changed or overwritten: of
  several racing puts of a path exactly one succeeds, the others get `AlreadyExists`;
- when `put` returns, the whole object survives power loss and every reader sees it;
- when `put` raises anything but `AlreadyExists`, the object may exist all the same (a lost
  answer, a late request): whoever retries must expect that;
- a path is relative, of non-empty segments joined by `/`, none of them `.` or `..`.

Errors are few: `NotFound`, `AlreadyExists`, `Unavailable` (worth retrying) and `InvalidPath` (a
mistake of the caller, found before any input or output).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

Buffer: TypeAlias = bytes | bytearray | memoryview

DEFAULT_THREADS = 8
REMOTE_SCHEMES = ("s3", "gs", "az", "memory")


class ObjectStoreError(Exception):
    """Anything that an object store reports; its text is a sentence for an operator."""


class NotFound(ObjectStoreError):
    """The object does not exist."""


class AlreadyExists(ObjectStoreError):
    """A put met an object of that name; nothing was written."""


class Unavailable(ObjectStoreError):
    """The store could not do it now: disk full, I/O error, throttled, timed out, unreachable.

    Worth retrying. After a put, the object may or may not exist.
    """


class InvalidPath(ObjectStoreError):
    """The path could escape the store or name no object; retrying cannot help."""


class ObjectInfo(NamedTuple):
    path: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        """Create the object from the parts in order: atomic, and durable at return.

        The caller must not change the parts until then.
        """

    async def get(self, path: str) -> bytes: ...

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        """Read `length` bytes from `start`; shorter, even empty, only at the object's end."""
        ...

    async def head(self, path: str) -> ObjectInfo: ...

    async def delete(self, path: str) -> None:
        """Remove the object; an absent one is fine."""

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Every object under the folder `prefix` ("" for all), ordered by path.

        `prefix` is whole segments, with or without a final slash: `wal/v1` does not find
        `wal/v10/x`.
        """
        ...

    async def close(self) -> None: ...


def open_store(
    url: str,
    *,
    threads: int = DEFAULT_THREADS,
    keep_cached: bool = True,
    options: Mapping[str, str] | None = None,
) -> ObjectStore:
    """Open the store that `url` names.

    `file:///dir` (the folder is made if missing), `memory://`, `s3://bucket/prefix`,
    `gs://bucket/prefix`, `az://container/prefix`. `threads` bounds the work in flight of the
    local store, and `keep_cached` is whether it leaves what it wrote in the page cache (see
    `wal/local.py`). `options` are settings of the remote store (`endpoint`, `allow_http`, …) and
    win over the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`).

    The implementations are imported here so that a broker on a local disk never pays for the
    remote library. A url that cannot be meant raises ValueError with a sentence.
    """
    split = urlsplit(url)
    if split.scheme == "file":
        if split.netloc not in ("", "localhost") or not split.path.startswith("/"):
            raise ValueError(f"storage url {url!r} must be file:///absolute/folder")
        from wal.local import LocalStore

        return LocalStore.open(unquote(split.path), threads=threads, keep_cached=keep_cached)
    if split.scheme in REMOTE_SCHEMES:
        from wal.remote import RemoteStore

        return RemoteStore.open(url, options=options or {})
    known = ", ".join(f"{scheme}://" for scheme in ("file", *REMOTE_SCHEMES))
    raise ValueError(f"storage url {url!r} has no known scheme; use one of {known}")


def check_path(path: str) -> str:
    """Return `path` if it is safe to hand to any store, else raise InvalidPath."""
    if not path or "\0" in path or "\\" in path:
        raise InvalidPath(f"object path {path!r} is empty or holds a NUL or a backslash")
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidPath(f"object path {path!r} has an empty, '.' or '..' segment")
    return path


def check_prefix(prefix: str) -> str:
    """Return the folder that `prefix` names, without a final slash; "" is the whole store."""
    folder = prefix.removesuffix("/")
    return check_path(folder) if folder else ""


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 0:
        raise ValueError(f"range start {start} and length {length} must not be negative")
