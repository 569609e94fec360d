"""What only the local store has: syncs in the right order, failing disks, its own folder."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from wal import local_write
from wal.local import LocalStore
from wal.objectstore import AlreadyExists, InvalidPath, Unavailable
from wal.scratch import SCRATCH_FOLDER
from wal.spares import PER_FOLDER


@pytest.fixture(params=["anonymous", "named"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalStore]:
    opened = LocalStore.open(f"{tmp_path}/objects", anonymous=request.param == "anonymous")
    yield opened
    await opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The syncs and links that happen, in order; they are done as well."""
    seen: list[str] = []

    def name_of(fd: int) -> str:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        return "data" if os.path.isfile(f"/proc/self/fd/{fd}") else name

    def recorded(name: str, function: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            function(fd)
            seen.append(f"{name} {name_of(fd)}")

        return call

    link = os.link

    def recorded_link(source: str, name: str, *, dst_dir_fd: int, follow_symlinks: bool) -> None:
        link(source, name, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)
        seen.append(f"link {name}")

    pwritev = os.pwritev

    def recorded_write(fd: int, parts: Sequence[bytes], offset: int, flags: int) -> int:
        count = pwritev(fd, parts, offset, flags)
        if flags & os.RWF_DSYNC:
            seen.append(f"sync {name_of(fd)}")
        return count

    monkeypatch.setattr(local_write, "sync_data", recorded("sync", local_write.sync_data))
    monkeypatch.setattr(os, "pwritev", recorded_write)
    monkeypatch.setattr(os, "fsync", recorded("sync", os.fsync))
    monkeypatch.setattr(os, "link", recorded_link)
    return seen


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("size", [7, 300_000])
async def test_data_is_synced_before_the_name_and_the_name_before_the_answer(
    store: LocalStore, calls: list[str], size: int
) -> None:
    await store.put("a/b/one", [bytes(size)])
    assert calls == ["sync objects", "sync a", "sync data", "link one", "sync b"]
    calls.clear()
    await store.put("a/b/two", [b"content"])
    assert calls == ["sync data", "link two", "sync b"]


async def test_a_folder_that_somebody_else_made_is_synced_too(
    store: LocalStore, root: Path, calls: list[str]
) -> None:
    (root / "a" / "b").mkdir(parents=True)
    await store.put("a/b/one", [b"content"])
    assert calls[:2] == ["sync objects", "sync a"]


async def test_an_existing_name_is_durable_before_the_refusal(
    store: LocalStore, calls: list[str]
) -> None:
    await store.put("a/one", [b"content"])
    calls.clear()
    with pytest.raises(AlreadyExists):
        await store.put("a/one", [b"content"])
    assert calls == ["sync data", "sync a"]


def test_each_new_parent_of_the_root_is_synced(tmp_path: Path, calls: list[str]) -> None:
    LocalStore.open(f"{tmp_path}/x/y/z")
    assert [call for call in calls if call.startswith("sync")] == [
        f"sync {tmp_path.name}",
        "sync x",
        "sync y",
    ]


@pytest.fixture
def small_files() -> Iterator[Callable[[], None]]:
    """No file may grow past 1 MiB, as on a full disk, until the function given is called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def lift() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield lift
    lift()


async def test_no_room_leaves_nothing_and_passes(
    store: LocalStore, root: Path, small_files: Callable[[], None]
) -> None:
    await store.put("fits", [b"x" * 1000])
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(Unavailable, match="cannot write object large: the file size limit"):
            await store.put("large", [b"x" * 3_000_000])
    # Files that are opened ahead come and go by themselves.
    assert open_descriptors() <= before + PER_FOLDER
    assert files_in(root) == ["fits"]
    await store.put("fits too", [b"x" * 1000])
    small_files()
    await store.put("large", [b"x" * 3_000_000])
    assert (await store.head("large")).size == 3_000_000


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "I/O error"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "Permission denied"),
    ],
)
@pytest.mark.parametrize("size", [1, 300_000])
async def test_what_the_disk_says_becomes_a_sentence(
    store: LocalStore,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    reason: str,
    size: int,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(local_write, "sync_data", fail)
        patched.setattr(os, "pwritev", fail)
        with pytest.raises(Unavailable, match=reason):
            await store.put("a/one", [bytes(size)])
    assert files_in(root) == []
    await store.put("a/one", [bytes(size)])


async def test_a_file_system_without_synced_writes_is_synced_afterwards(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "pwritev", refuse)
    # Put back afterwards: it is remembered for the process.
    monkeypatch.setattr(local_write, "_RWF_DSYNC", os.RWF_DSYNC)
    await store.put("one", [b"content"])
    assert calls == ["sync data", "link one", "sync objects"]
    assert await store.get("one") == b"content"


async def test_a_write_that_stops_short_is_done_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, *rest: pwritev(fd, [parts[0]], *rest))
    await store.put("one", [b"some ", b"content"])
    assert await store.get("one") == b"some content"


async def test_a_folder_that_was_removed_is_made_again(store: LocalStore, root: Path) -> None:
    await store.put("a/b/one", [b"1"])
    shutil.rmtree(root / "a")
    await store.put("a/b/two", [b"2"])
    assert await store.get("a/b/two") == b"2"


async def test_a_root_that_is_gone_is_not_made_again(store: LocalStore, root: Path) -> None:
    await store.put("a/one", [b"1"])
    os.rename(root, f"{root}-unmounted")
    shutil.rmtree(f"{root}-unmounted/a")
    with pytest.raises(Unavailable, match="gone"):
        await store.put("a/two", [b"2"])
    assert "objects" not in os.listdir(root.parent)
    os.rename(f"{root}-unmounted", root)
    await store.put("a/two", [b"2"])


async def test_objects_and_folders_cannot_share_a_name(store: LocalStore) -> None:
    await store.put("a/one", [b"1"])
    with pytest.raises(InvalidPath, match="folder"):
        await store.put("a", [b"1"])
    with pytest.raises(InvalidPath, match="is an object"):
        await store.put("a/one/two", [b"1"])


async def test_the_scratch_folder_is_out_of_reach(store: LocalStore) -> None:
    for path in (SCRATCH_FOLDER, f"{SCRATCH_FOLDER}/x"):
        with pytest.raises(InvalidPath, match="own"):
            await store.put(path, [b"1"])
    await store.put(f"a/{SCRATCH_FOLDER}", [b"elsewhere it is a name like any other"])
    assert [info.path async for info in store.list("")] == [f"a/{SCRATCH_FOLDER}"]


@pytest.mark.parametrize(("keep_cached", "given_up"), [(True, []), (False, [4_000_000])])
async def test_the_page_cache_of_large_objects_is_given_up_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_cached: bool, given_up: list[int]
) -> None:
    sizes: list[int] = []
    fadvise = os.posix_fadvise

    def recorded(fd: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        sizes.append(os.fstat(fd).st_size)
        fadvise(fd, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", recorded)
    store = LocalStore.open(str(tmp_path), keep_cached=keep_cached)
    await store.put("small", [b"x" * 1000])
    await store.put("large", [b"x" * 4_000_000])
    assert sizes == given_up
    assert await store.get("large") == b"x" * 4_000_000
    await store.close()


async def test_stores_in_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    first = LocalStore.open(str(tmp_path), anonymous=False)
    second = LocalStore.open(str(tmp_path), anonymous=False)
    await first.put("one", [b"1"])
    await second.put("two", [b"2"])
    assert await first.get("two") == b"2"
    with pytest.raises(AlreadyExists):
        await second.put("one", [b"1"])
    await second.close()
    await first.put("three", [b"3"])
    await first.close()
    assert os.listdir(tmp_path / SCRATCH_FOLDER) == []


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = LocalStore.open(str(tmp_path))
    await store.put("one", [b"1"])
    await store.get_range("one", 0, 1)
    await store.close()
    await store.close()
    for call in (store.put("two", [b"2"]), store.get("one"), store.get_range("one", 0, 1)):
        with pytest.raises(Unavailable, match="closed"):
            await call


async def test_closing_waits_for_what_is_under_way(tmp_path: Path) -> None:
    store = LocalStore.open(str(tmp_path))
    puts = [asyncio.create_task(store.put(f"{i}", [bytes(500_000)])) for i in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*puts)
    assert len(files_in(tmp_path)) == 20


async def test_open_files_stay_bounded(store: LocalStore) -> None:
    names = [f"{i}/object" for i in range(300)]
    for name in names:
        await store.put(name, [name.encode()])
    for name in names:
        assert bytes(await store.get_range(name, 0, 100)) == name.encode()
    descriptors = open_descriptors()
    for name in reversed(names):
        assert bytes(await store.get_range(name, 0, 100)) == name.encode()
    assert open_descriptors() <= descriptors < 300


async def test_a_root_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="cannot use the folder"):
        LocalStore.open(f"{tmp_path}/file/below")
