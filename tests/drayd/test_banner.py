"""The start banner."""

from __future__ import annotations

from pathlib import Path

from drayd import __version__
from drayd.banner import banner
from drayd.config import Settings
from drayd.kinds import HostPort

LOCAL = HostPort("localhost", 32768)


def test_it_says_where_to_connect_where_data_is_and_what_to_try(tmp_path: Path) -> None:
    text = banner(Settings(data_dir=tmp_path), advertised=LOCAL, http=HostPort("localhost", 8092))
    assert text.splitlines() == [
        f"Dray {__version__} is ready.",
        "  Kafka clients  localhost:32768",
        f"  Data           {tmp_path}",
        "  Health         http://localhost:8092/readyz · metrics http://localhost:8092/metrics",
        "  Try            echo hello | kcat -P -b localhost:32768 -t first"
        " && kcat -C -b localhost:32768 -t first -e",
    ]


def test_without_http_and_with_remote_stores() -> None:
    text = banner(
        Settings(storage="s3://bucket/x", metadata="memory://"), advertised=LOCAL, http=None
    )
    assert "Data           s3://bucket/x · metadata in memory://" in text
    assert "Health" not in text


def test_with_records_elsewhere(tmp_path: Path) -> None:
    text = banner(Settings(data_dir=tmp_path, storage="s3://bucket"), advertised=LOCAL, http=None)
    assert f"Data           {tmp_path}\n  Records        s3://bucket\n" in text


def test_every_interface_is_shown_as_something_to_open() -> None:
    text = banner(Settings(), advertised=LOCAL, http=HostPort("", 8092))
    assert "http://localhost:8092/readyz" in text
