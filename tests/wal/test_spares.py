"""Files that are opened ahead: bounded, per folder, and never leaked."""

from __future__ import annotations

import os
from pathlib import Path

from wal.local import LocalStore
from wal.spares import MAX_TOTAL, PER_FOLDER, Spares


def opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_spare_is_taken_once_and_only_for_its_folder(tmp_path: Path) -> None:
    spares = Spares()
    fd = opened(tmp_path)
    spares.add("a", fd)
    assert spares.take("b") is None
    assert spares.take("a") == fd
    assert spares.take("a") is None
    os.close(fd)


def test_a_folder_wants_only_a_few(tmp_path: Path) -> None:
    spares = Spares()
    for _ in range(PER_FOLDER):
        assert spares.wants("a")
        spares.add("a", opened(tmp_path))
    assert not spares.wants("a")
    assert spares.wants("b")
    spares.close()


def test_the_folders_used_longest_ago_are_given_up(tmp_path: Path) -> None:
    spares = Spares()
    fds = [opened(tmp_path) for _ in range(MAX_TOTAL + 1)]
    for number, fd in enumerate(fds):
        spares.add(f"folder {number}", fd)
    assert [is_open(fd) for fd in fds] == [False] + [True] * MAX_TOTAL
    spares.close()
    assert not any(map(is_open, fds))
    late = opened(tmp_path)
    spares.add("a", late)
    assert not is_open(late)


async def test_puts_use_them_and_closing_leaves_none_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store = LocalStore.open(str(tmp_path / "objects"))
    for number in range(20):
        await store.put(f"a/{number}", [b"x" * number])
    for number in range(20):
        assert await store.get(f"a/{number}") == b"x" * number
    assert sorted(os.listdir(tmp_path / "objects" / "a")) == sorted(map(str, range(20)))
    await store.close()
    assert len(os.listdir("/proc/self/fd")) <= before
