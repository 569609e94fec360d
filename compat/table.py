"""The table of results: for the terminal, and for the README between its two markers."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MARKERS = ("<!-- compat -->", "<!-- /compat -->")


class Column(NamedTuple):
    """A client: each check's mark, and the reason of what isn't a pass."""

    name: str
    version: str
    results: Mapping[str, tuple[str, str]]


def table(columns: Sequence[Column], checks: Sequence[str]) -> str:
    """Markdown, a line for each check; aligned, so that it can be read as it is."""
    heads = ["", *(column.name for column in columns)]
    rows = [["version", *(column.version for column in columns)]]
    rows += [
        [check, *(column.results.get(check, ("", ""))[0] for column in columns)] for check in checks
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    rule = ["-" * widths[0], *(f":{'-' * max(1, width - 2)}:" for width in widths[1:])]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [heads, rule, *rows]
    )


def reasons(columns: Sequence[Column], mark: str) -> list[str]:
    """Why results have this mark: a sentence for each client and reason."""
    lines = []
    for column in columns:
        by_reason: dict[str, list[str]] = {}
        for check, (found, reason) in column.results.items():
            if found == mark:
                by_reason.setdefault(reason, []).append(check)
        lines += [
            f"{column.name}, {', '.join(checks)}: {reason}" for reason, checks in by_reason.items()
        ]
    return lines


def compact(text: str) -> str:
    """The table without the blanks that align it, for a file."""
    return re.sub(r" {2,}", " ", text)


def write(readme: Path, text: str) -> None:
    """Put the text between the README's markers."""
    before, opened, rest = readme.read_text().partition(MARKERS[0])
    _, closed, after = rest.partition(MARKERS[1])
    if not opened or not closed:
        raise ValueError(f"{readme.name} has no {MARKERS[0]} … {MARKERS[1]}")
    readme.write_text(f"{before}{opened}\n{text}\n{closed}{after}")
