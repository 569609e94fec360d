"""Objects as files of a local folder, durable when `put` returns (`docs/adr/0002`).

A put writes an anonymous file (O_TMPFILE), syncs its data, links it into place, which fails if
the name is taken, and syncs the folder. So at every moment a name is absent or stands for the
whole, synced object, and after return the name itself survives power loss. Where a file system
has no anonymous files, a named one under `.tmp` takes its place (`wal/scratch.py`).

Invariants:
- a folder is used only after the entry of each of its parents was synced by this process,
  whoever made it: another process may have died between making and syncing it;
- `AlreadyExists` is raised only after the existing name was made durable, because for a retry
  of one's own put it means success;
- a failed put leaves nothing, or (if only the last sync failed) the whole object;
- the root is never re-created behind the operator's back: an unmounted disk is `Unavailable`,
  not a reason to write next to its mount point.

A delete is not synced: after power loss the object may be back, as an orphan to be collected.
Blocking calls run in two thread pools, so that reads do not queue behind syncs; a small read of
bytes in the page cache runs at once on the event loop, where it costs less than the hop.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from wal import local_write
from wal.descriptors import Descriptor, DescriptorCache
from wal.objectstore import (
    DEFAULT_THREADS,
    AlreadyExists,
    Buffer,
    InvalidPath,
    NotFound,
    ObjectInfo,
    Unavailable,
    check_path,
    check_prefix,
    check_range,
)
from wal.scratch import SCRATCH_FOLDER, Scratch
from wal.spares import Spares
from wal.threads import Threads

T = TypeVar("T")

_MAX_OPEN_FILES = 128
_MAX_OPEN_FOLDERS = 64
_INLINE_READ_BYTES = 128 * 1024
_PLAIN_READ_BYTES = 1024 * 1024

# Not on every Unix; without them the slower ways are taken.
_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit is reached",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk reported an I/O error",
    errno.EMFILE: "the process has too many open files",
    errno.ENOENT: "its folder is gone",
}


class LocalStore:
    """An ObjectStore in a folder. Make it with `open`, which blocks for a moment."""

    def __init__(
        self, root: str, scratch: Scratch, *, anonymous: bool, threads: int, keep_cached: bool
    ) -> None:
        self._root = root
        self._scratch = scratch
        self._anonymous = anonymous
        self._keep_cached = keep_cached
        self._readers = Threads(threads, "object-read")
        self._writers = Threads(threads, "object-write")
        self._files = DescriptorCache(_MAX_OPEN_FILES)
        self._folders = DescriptorCache(_MAX_OPEN_FOLDERS)
        self._spares = Spares()
        self._nowait = bool(_RWF_NOWAIT)
        self._closed = False

    @classmethod
    def open(
        cls,
        root: str,
        *,
        threads: int = DEFAULT_THREADS,
        keep_cached: bool = True,
        anonymous: bool = True,
    ) -> LocalStore:
        """Open the folder, making it if missing, and clean up after killed processes.

        `keep_cached` False gives up the page cache of a large object once it is on the disk:
        writing costs less where fresh memory is dear (some virtual machines), reading it back
        costs a read of the disk. `anonymous` False never uses anonymous files, even where the
        file system has them.
        """
        root = os.path.abspath(root)
        try:
            _make_root(root)
            scratch = Scratch(root)
            anonymous = anonymous and _links_anonymous_files(root, scratch.next_path())
        except OSError as error:
            raise Unavailable(f"cannot use the folder {root}: {_reason(error)}") from error
        return cls(root, scratch, anonymous=anonymous, threads=threads, keep_cached=keep_cached)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        _check_local_path(path)
        try:
            await self._run(
                self._writers, lambda: self._put_now(path, parts), lambda: self._refill(path)
            )
        except FileExistsError as error:
            raise AlreadyExists(f"object {path} exists already") from error
        except NotADirectoryError as error:
            raise InvalidPath(f"a folder of object path {path!r} is an object") from error
        except OSError as error:
            raise Unavailable(f"cannot write object {path}: {_reason(error)}") from error

    async def get(self, path: str) -> bytes:
        _check_local_path(path)
        return await self._look(path, lambda: self._get_now(path))

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        _check_local_path(path)
        check_range(start, length)
        if length <= _INLINE_READ_BYTES and self._nowait and not self._closed:
            cached = self._read_from_page_cache(path, start, length)
            if cached is not None:
                return cached
        return await self._look(path, lambda: self._read_now(path, start, length))

    async def head(self, path: str) -> ObjectInfo:
        _check_local_path(path)
        return await self._look(path, lambda: self._head_now(path))

    async def delete(self, path: str) -> None:
        _check_local_path(path)
        try:
            await self._run(self._writers, lambda: self._delete_now(path))
        except OSError as error:
            raise Unavailable(f"cannot delete object {path}: {_reason(error)}") from error

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        # A stack with the next path in order on top; a folder is replaced by what is in it.
        pending: list[ObjectInfo | str] = [check_prefix(prefix)]
        while pending:
            item = pending.pop()
            if isinstance(item, ObjectInfo):
                yield item
                continue
            try:
                pending += await self._run(self._readers, partial(self._scan_now, item))
            except OSError as error:
                raise Unavailable(f"cannot list folder {item!r}: {_reason(error)}") from error

    async def close(self) -> None:
        """Wait for what is under way, then give up threads and descriptors."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._close_now)

    async def _look(self, path: str, work: Callable[[], T]) -> T:
        try:
            return await self._run(self._readers, work)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(f"object {path} does not exist") from error
        except OSError as error:
            raise Unavailable(f"cannot read object {path}: {_reason(error)}") from error

    async def _run(
        self, pool: Threads, work: Callable[[], T], after: Callable[[], None] | None = None
    ) -> T:
        if self._closed:
            raise Unavailable(f"the object store {self._root} is closed")
        return await pool.run(work, after)

    def _read_from_page_cache(self, path: str, start: int, length: int) -> bytearray | None:
        """Read without blocking, or None if that cannot be done in full."""
        descriptor = self._files.get(path)
        if descriptor is None:
            return None
        buffer = bytearray(length)
        try:
            count = os.preadv(descriptor.fd, (buffer,), start, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:
            # The file system cannot say what is cached; any other error the thread meets too.
            self._nowait = False
            return None
        return buffer if count == length else None

    # What follows runs in the threads of a pool.

    def _put_now(self, path: str, parts: Sequence[Buffer]) -> None:
        folder_path, _, name = path.rpartition("/")
        folder = self._folders.opened(folder_path, self._open_folder)
        try:
            self._write_into(folder.fd, name, parts, self._spares.take(folder_path))
        except OSError:
            if os.fstat(folder.fd).st_nlink:
                raise
            # The folder was removed since it was opened: once more, from the root down.
            self._folders.discard(folder_path)
            self._spares.discard(folder_path)
            folder = self._folders.opened(folder_path, self._open_folder)
            self._write_into(folder.fd, name, parts, None)

    def _refill(self, path: str) -> None:
        """After a put, whose answer doesn't wait for it: open a file for the next one."""
        folder_path = path.rpartition("/")[0]
        if self._anonymous and self._spares.wants(folder_path):
            # Without one the next put opens its own file, and reports what is wrong.
            with suppress(OSError):
                folder = self._folders.opened(folder_path, self._open_folder)
                self._spares.add(folder_path, _open_anonymous(folder.fd))

    def _write_into(
        self, folder_fd: int, name: str, parts: Sequence[Buffer], spare: int | None
    ) -> None:
        if self._anonymous:
            fd = _open_anonymous(folder_fd) if spare is None else spare
            source = f"/proc/self/fd/{fd}"
        else:
            source = self._scratch.next_path()
            fd = os.open(source, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            local_write.write_durably(fd, parts)
            if not self._keep_cached:
                local_write.drop_cached(fd)
            try:
                os.link(source, name, dst_dir_fd=folder_fd, follow_symlinks=True)
            except FileExistsError:
                if stat.S_ISDIR(os.stat(name, dir_fd=folder_fd).st_mode):
                    raise InvalidPath(f"object name {name!r} is taken by a folder") from None
                os.fsync(folder_fd)
                raise
        finally:
            os.close(fd)
            if not self._anonymous:
                os.unlink(source)
        os.fsync(folder_fd)

    def _open_folder(self, folder: str) -> Descriptor:
        """Make what is missing of a folder, and sync the entry of each level in its parent."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        level = Descriptor(os.open(self._root, flags))
        for segment in folder.split("/") if folder else ():
            with suppress(FileExistsError):
                os.mkdir(segment, 0o755, dir_fd=level.fd)
            inner = Descriptor(os.open(segment, flags, dir_fd=level.fd))
            os.fsync(level.fd)
            level = inner
        return level

    def _open_file(self, path: str) -> Descriptor:
        descriptor = Descriptor(os.open(f"{self._root}/{path}", os.O_RDONLY))
        if not stat.S_ISREG(os.fstat(descriptor.fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, "not a file")
        return descriptor

    def _read_now(self, path: str, start: int, length: int) -> bytes:
        descriptor = self._files.opened(path, self._open_file)
        return _read_range(descriptor.fd, start, length)

    def _get_now(self, path: str) -> bytes:
        descriptor = self._open_file(path)
        return _read_range(descriptor.fd, 0, os.fstat(descriptor.fd).st_size)

    def _head_now(self, path: str) -> ObjectInfo:
        status = os.stat(f"{self._root}/{path}")
        if not stat.S_ISREG(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "not a file")
        return _info(path, status)

    def _delete_now(self, path: str) -> None:
        # A folder is no object, so there is nothing of that name to delete.
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            os.unlink(f"{self._root}/{path}")
        self._files.discard(path)

    def _scan_now(self, folder: str) -> Sequence[ObjectInfo | str]:
        """A folder's objects and folders, last one first."""
        found: list[tuple[str, ObjectInfo | str]] = []
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{self._root}/{folder}") as entries,
        ):
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path == SCRATCH_FOLDER:
                    continue
                if entry.is_dir():
                    # Ordered by whole paths: "a.x" comes before what is in the folder "a".
                    found.append((f"{entry.name}/", path))
                    continue
                with suppress(FileNotFoundError):  # deleted meanwhile
                    found.append((entry.name, _info(path, entry.stat())))
        found.sort(reverse=True)
        return [item for _, item in found]

    def _close_now(self) -> None:
        self._writers.close()
        self._spares.close()
        self._readers.close()
        self._files.clear()
        self._folders.clear()
        self._scratch.close()


def _open_anonymous(folder_fd: int) -> int:
    return os.open(".", _O_TMPFILE | os.O_WRONLY, 0o644, dir_fd=folder_fd)


def _read_range(fd: int, start: int, length: int) -> bytes:
    if length > _PLAIN_READ_BYTES:
        # pread allocates what is asked for before it looks at the file.
        length = max(0, min(length, os.fstat(fd).st_size - start))
    data = os.pread(fd, length, start)
    while 0 < len(data) < length:
        more = os.pread(fd, length - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _check_local_path(path: str) -> None:
    check_path(path)
    if path == SCRATCH_FOLDER or path.startswith(f"{SCRATCH_FOLDER}/"):
        raise InvalidPath(f"object path {path!r} is the store's own")


def _make_root(root: str) -> None:
    """Make the folder with its parents, each durable in the one above."""
    missing: list[str] = []
    while not os.path.isdir(root):
        missing.append(root)
        root = os.path.dirname(root)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder, 0o755)
        fd = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _links_anonymous_files(root: str, probe: str) -> bool:
    """Whether the file system has anonymous files and lets them be linked."""
    if not _O_TMPFILE:
        return False
    try:
        fd = os.open(root, _O_TMPFILE | os.O_WRONLY, 0o644)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            return False
        raise
    folder_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(f"/proc/self/fd/{fd}", probe, dst_dir_fd=folder_fd, follow_symlinks=True)
    except OSError:
        return False  # no /proc, or no links: the named way will tell
    finally:
        os.close(folder_fd)
        os.close(fd)
    os.unlink(probe)
    return True


def _reason(error: OSError) -> str:
    return _REASONS.get(error.errno or 0) or error.strerror or str(error)
