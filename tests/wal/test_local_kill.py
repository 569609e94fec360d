"""SIGKILL while objects are put: what was acknowledged is whole, what is there is whole."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.wal.put_loop import content, path
from wal.local import LocalStore
from wal.scratch import SCRATCH_FOLDER

ROOT = Path(__file__).parent.parent.parent


async def put_until_killed(folder: Path, first: int, mode: str, kill_after: int) -> list[int]:
    """The numbers that a process acknowledged before it was killed, `kill_after` at least."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.wal.put_loop",
        str(folder),
        str(first),
        mode,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = [await process.stdout.readline() for _ in range(kill_after)]
    process.send_signal(signal.SIGKILL)
    lines += (await process.stdout.read()).splitlines(keepends=True)
    assert await process.wait() == -signal.SIGKILL
    return [int(line) for line in lines if line.endswith(b"\n")]


@pytest.mark.parametrize("mode", ["anonymous", "named"])
async def test_killed_while_putting(tmp_path: Path, mode: str) -> None:
    acknowledged: set[int] = set()
    for round_number, kill_after in enumerate((1, 7, 40)):
        numbers = await put_until_killed(tmp_path, round_number * 100_000, mode, kill_after)
        assert len(numbers) >= kill_after
        acknowledged.update(numbers)
    store = LocalStore.open(str(tmp_path))
    for number in acknowledged:
        assert await store.get(path(number)) == content(number)
    found = 0
    async for info in store.list(""):
        number = int(Path(info.path).stem)
        assert await store.get(info.path) == content(number)
        found += 1
    assert found >= len(acknowledged)
    await store.close()
    # What the killed processes were writing is gone.
    assert os.listdir(tmp_path / SCRATCH_FOLDER) == []
