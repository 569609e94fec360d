"""Tables for the README, made from the code: `python -m drayd.reference settings`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from drayd.config import SETTINGS
from drayd.kinds import INT32_MAX, INT64_MAX

_UNLIMITED = {str(INT32_MAX), str(INT64_MAX)}


def settings_table() -> str:
    """Every setting as a Markdown table."""
    lines = ["| setting | default | kind | what it does |", "|---|---|---|---|"]
    for setting in SETTINGS.values():
        shown = setting.show(setting.default)
        default = "unlimited" if shown in _UNLIMITED else f"`{shown}`" if shown else "(empty)"
        lines.append(f"| `{setting.key}` | {default} | {setting.kind.label} | {setting.doc} |")
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[], str]] = {"settings": settings_table}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in TABLES:
        print(f"usage: python -m drayd.reference {{{','.join(TABLES)}}}", file=sys.stderr)
        return 2
    print(TABLES[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
