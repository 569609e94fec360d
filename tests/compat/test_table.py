"""The table of results, and its place in the README."""

from pathlib import Path

import pytest

from compat import table
from compat.table import MARKERS, Column
from compat.toolchain import ROOT

COLUMNS = [
    Column("kcat", "1.7.1", {"create": ("–", "no admin"), "read": ("✓", "")}),
    Column("Java", "4.3.1", {"create": ("✓", ""), "read": ("✗", "a gap")}),
]


def test_a_line_for_each_check_and_a_column_for_each_client() -> None:
    lines = table.compact(table.table(COLUMNS, ["create", "read"])).splitlines()
    assert lines[0] == "| | kcat | Java |"
    assert lines[2:] == ["| version | 1.7.1 | 4.3.1 |", "| create | – | ✓ |", "| read | ✓ | ✗ |"]


def test_reasons_name_client_and_checks() -> None:
    assert table.reasons(COLUMNS, "–") == ["kcat, create: no admin"]
    assert table.reasons(COLUMNS, "✗") == ["Java, read: a gap"]


def test_only_what_is_between_the_markers_is_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{MARKERS[0]}\nold\n{MARKERS[1]}\nafter\n")
    table.write(readme, "new")
    assert readme.read_text() == f"before\n{MARKERS[0]}\nnew\n{MARKERS[1]}\nafter\n"


def test_a_readme_without_markers_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing here\n")
    with pytest.raises(ValueError, match="has no"):
        table.write(readme, "new")
    assert readme.read_text() == "nothing here\n"


def test_the_readme_has_a_place_for_the_table() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count(MARKERS[0]) == text.count(MARKERS[1]) == 1
