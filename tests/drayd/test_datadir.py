"""The data folder and its lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drayd.datadir import LOCK_NAME, DataDir, DataDirError

HOLDER = """
import sys
from pathlib import Path
from drayd.datadir import DataDir
DataDir.open(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    with DataDir.open(path) as data_dir:
        assert data_dir.path == path
        assert path.is_dir()
        assert (path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_one_at_a_time_also_within_a_process(tmp_path: Path) -> None:
    with DataDir.open(tmp_path):
        with pytest.raises(DataDirError) as caught:
            DataDir.open(tmp_path)
        assert str(caught.value) == (
            f"The data folder {tmp_path} is in use by another process (pid {os.getpid()}); "
            "stop that one, or choose another folder with --data-dir."
        )
    DataDir.open(tmp_path).close()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DataDirError, match=rf"in use by another process \(pid {holder.pid}\)"):
            DataDir.open(tmp_path)
        holder.kill()
        holder.wait(timeout=30)
    DataDir.open(tmp_path).close()


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    data_dir = DataDir.open(tmp_path)
    data_dir.close()
    data_dir.close()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for path in (file, file / "below"):
        with pytest.raises(DataDirError, match="Can't use the data folder"):
            DataDir.open(path)
