"""The descriptor cache: what it closes, what it keeps, what it forgets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wal.descriptors import Descriptor, DescriptorCache


def opener(folder: Path) -> Callable[[str], Descriptor]:
    return lambda name: Descriptor(os.open(folder / name, os.O_CREAT | os.O_RDWR))


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_a_descriptor_is_opened_once_and_closed_when_evicted(tmp_path: Path) -> None:
    cache = DescriptorCache(2)
    first = cache.opened("a", opener(tmp_path)).fd
    evicted = cache.opened("b", opener(tmp_path)).fd
    assert cache.opened("a", opener(tmp_path)).fd == first
    # "b" was used least recently; its number is free again only once it is closed.
    cache.opened("c", opener(tmp_path))
    assert cache.get("b") is None
    assert os.open(tmp_path / "d", os.O_CREAT) == evicted
    os.close(evicted)
    assert is_open(first)
    cache.clear()
    assert not is_open(first)


def test_a_descriptor_in_use_survives_its_eviction(tmp_path: Path) -> None:
    cache = DescriptorCache(1)
    held = cache.opened("a", opener(tmp_path))
    os.write(held.fd, b"content")
    cache.opened("b", opener(tmp_path))
    cache.clear()
    assert os.pread(held.fd, 10, 0) == b"content"


def test_a_file_removed_while_it_was_opened_is_not_cached(tmp_path: Path) -> None:
    cache = DescriptorCache(4)

    def removed_meanwhile(name: str) -> Descriptor:
        descriptor = opener(tmp_path)(name)
        os.unlink(tmp_path / name)
        cache.discard(name)
        return descriptor

    cache.opened("a", removed_meanwhile)
    assert cache.get("a") is None


def test_an_opener_that_fails_leaves_nothing(tmp_path: Path) -> None:
    cache = DescriptorCache(4)

    def fail(name: str) -> Descriptor:
        raise FileNotFoundError(name)

    with pytest.raises(FileNotFoundError):
        cache.opened("a", fail)
    assert cache.get("a") is None
