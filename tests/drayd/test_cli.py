"""The command line, without a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from drayd import __version__
from drayd.cli import main
from drayd.config import SETTINGS
from drayd.datadir import DataDir
from wal.format import encode

FLAGS = (
    "--data-dir",
    "--listen",
    "--advertise",
    "--http-listen",
    "--metadata",
    "--storage",
    "--broker-id",
    "--zone",
    "--config",
    "--set",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DRAY_")]:
        monkeypatch.delenv(name)


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def drayd(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "drayd", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"drayd  {__version__}\n")
    assert "kio" in out


def test_the_module_is_the_command() -> None:
    done = drayd("--version")
    assert (done.returncode, done.stdout) == (0, f"drayd {__version__}\n")


@pytest.mark.parametrize("arguments", ["version", "--help", "start --help", "config"])
def test_quick_commands_import_nothing_heavy(arguments: str) -> None:
    code = (
        "import sys\n"
        "from drayd.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'uvloop', 'obstore', 'kio', 'asyncio', 'starlette', 'prometheus_client'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == "[]\n"


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    top = help_of(capsys)
    for word in ("start", "broker", "admin", "config", "version", "examples:"):
        assert word in top
    for command in ("start", "broker", "config"):
        text = help_of(capsys, command)
        for flag in FLAGS:
            assert flag in text
    for command in (
        "admin",
        "admin topics",
        "admin topics create",
        "admin topics list",
        "admin topics describe",
        "admin topics delete",
        "admin cluster",
        "admin wal inspect",
        "admin index",
        "version",
    ):
        assert f"usage: drayd {command}" in help_of(capsys, *command.split())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["start", "--port", "1"],
        ["start", "--data", "x"],
        ["admin"],
        ["admin", "topics", "create"],
        ["admin", "topics", "create", "t", "--partitions", "0"],
        ["admin", "topics", "create", "t", "--config", "no-value"],
        ["admin", "index", "t", "first"],
    ],
)
def test_wrong_usage_is_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: drayd" in capsys.readouterr().err


def test_config_shows_every_setting_and_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dray.yaml"
    file.write_text("zone: a\nwal.flush.max_bytes: 1MiB\n")
    monkeypatch.setenv("DRAY_NUM_PARTITIONS", "4")
    flags = ["--config", str(file), "--listen", ":0", "--set", "log.level=debug", "--zone", "b"]
    assert main(["config", *flags]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == list(SETTINGS)
    shown = {row[0]: (row[1], row[2]) for row in rows}
    assert shown["zone"] == ("b", "--zone")
    assert shown["wal.flush.max_bytes"] == ("1MiB", f"{file}:2")
    assert shown["num.partitions"] == ("4", "DRAY_NUM_PARTITIONS")
    assert shown["listen"] == (":0", "--listen")
    assert shown["log.level"] == ("debug", "--set")
    assert shown["broker.id"] == ("0", "default")
    assert shown["metadata"] == (f"sqlite://{Path.cwd()}/dray-data/metadata.db", "default")

    assert main(["config", "--json", *flags]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["zone"] == {"value": "b", "source": "--zone"}


def test_the_last_flag_wins(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, expected in (
        (["--zone", "a", "--set", "zone=b"], "b"),
        (["--set", "zone=b", "--zone", "a"], "a"),
    ):
        assert main(["config", "--json", *flags]) == 0
        assert json.loads(capsys.readouterr().out)["zone"]["value"] == expected


@pytest.mark.parametrize("command", ["start", "broker", "config"])
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--set", "wal.flush.linger=5"],
            'Unknown setting "wal.flush.linger" (--set); the nearest one is wal.flush.linger_ms.',
        ),
        (
            ["--broker-id", "one"],
            'broker.id (--broker-id) must be a whole number, not "one".',
        ),
        (["--set", "zone"], '--set needs key=value, such as --set log.level=debug, not "zone".'),
    ],
)
def test_bad_settings_stop_the_start_with_one_sentence(
    command: str, flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *flags]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"drayd: {sentence}\n"
    assert captured.out == ""


def test_a_data_folder_in_use_is_refused(tmp_path: Path) -> None:
    with DataDir.open(tmp_path):
        done = drayd("start", "--data-dir", str(tmp_path), "--listen", "localhost:0")
    assert done.returncode == 1
    assert done.stderr == (
        f"drayd: The data folder {tmp_path} is in use by another process (pid {os.getpid()}); "
        "stop that one, or choose another folder with --data-dir.\n"
    )


def test_admin_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "topics", "list", "--bootstrap", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "drayd: Can't connect to a broker on 127.0.0.1:1: Connection refused.\n"
    )
    assert main(["admin", "topics", "list", "--bootstrap", "localhost"]) == 2
    assert "--bootstrap must be HOST:PORT" in capsys.readouterr().err


def test_wal_inspect_of_what_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "wal", "inspect", str(tmp_path / "absent")]) == 1
    assert "No such file" in capsys.readouterr().err
    junk = tmp_path / "junk"
    junk.write_bytes(b"DRAYWO" * 10)
    assert main(["admin", "wal", "inspect", str(junk)]) == 1
    captured = capsys.readouterr()
    assert "CORRUPT" in captured.out
    assert "is not a sound WAL object" in captured.err


def test_wal_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoded = encode(UUID(int=7), 3, 1_700_000_000_000, [])
    file = tmp_path / "object"
    file.write_bytes(b"".join(encoded.parts))
    assert main(["admin", "wal", "inspect", str(file)]) == 0
    assert str(UUID(int=7)) in capsys.readouterr().out


def test_index_without_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "index", "t", "0", "--data-dir", str(tmp_path)]) == 1
    assert f"There is no metadata store at {tmp_path}/metadata.db" in capsys.readouterr().err
    assert main(["admin", "index", "t", "0", "--metadata", "memory://"]) == 2
    assert "metadata must be sqlite:///" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "drayd", "config"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == ""
