"""The README's tables come from the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from drayd.config import SETTINGS
from drayd.dispatch import APIS
from drayd.reference import apis_table, main, renewed, settings_table

README = Path(__file__).parents[2] / "README.md"


def test_the_settings_table_names_every_setting() -> None:
    table = settings_table()
    for key in SETTINGS:
        assert f"| `{key}` |" in table
    assert "| `wal.flush.max_bytes` | `8MiB` | size |" in table
    assert "| `max.connections` | unlimited |" in table


def test_the_api_table_names_every_api() -> None:
    table = apis_table()
    assert len(table.splitlines()) == len(APIS) + 2
    for api in APIS:
        assert f"| {api.key} | {api.name} |" in table


def test_marked_tables_are_renewed_and_the_rest_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "doc.md"
    file.write_text("a\n<!-- reference: settings -->\nold\n<!-- /reference -->\nb\n")
    assert main(["write", str(file)]) == 0
    text = file.read_text()
    assert text == (
        f"a\n<!-- reference: settings -->\n{settings_table()}\n<!-- /reference -->\nb\n"
    )
    assert renewed(text) == text


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    assert capsys.readouterr().out == settings_table() + "\n"
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_readme_is_up_to_date() -> None:
    """If this fails: python -m drayd.reference write README.md"""
    text = README.read_text(encoding="utf-8")
    assert "<!-- reference: settings -->" in text
    assert "<!-- reference: apis -->" in text
    assert renewed(text) == text
