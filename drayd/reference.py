"""Tables for the README, made from the code.

`python -m drayd.reference settings` prints one; `python -m drayd.reference write README.md`
renews those that a file marks with

    <!-- reference: settings -->
    <!-- /reference -->

so that no table is ever written by hand. A test fails when the README's are out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from drayd.config import SETTINGS
from drayd.kinds import INT32_MAX, INT64_MAX

_UNLIMITED = {str(INT32_MAX), str(INT64_MAX)}
_MARKED = re.compile(
    r"(?P<open><!-- reference: (?P<name>\w+) -->\n).*?(?P<close><!-- /reference -->)", re.DOTALL
)


def settings_table() -> str:
    """Every setting as a Markdown table."""
    lines = ["| setting | default | kind | what it does |", "|---|---|---|---|"]
    for setting in SETTINGS.values():
        shown = setting.show(setting.default)
        default = "unlimited" if shown in _UNLIMITED else f"`{shown}`" if shown else "(empty)"
        lines.append(f"| `{setting.key}` | {default} | {setting.kind.label} | {setting.doc} |")
    return "\n".join(lines)


def apis_table() -> str:
    """Every Kafka API that is served, with its versions, as a Markdown table."""
    # Late: it brings all handlers with it.
    from drayd.dispatch import APIS

    lines = ["| key | API | versions |", "|---|---|---|"]
    lines.extend(
        f"| {api.key} | {api.name} | {api.min_version}–{api.max_version} |"
        for api in sorted(APIS, key=lambda api: api.key)
    )
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[], str]] = {"settings": settings_table, "apis": apis_table}


def renewed(text: str) -> str:
    """The text with every marked table made anew; an unknown name is a KeyError."""
    return _MARKED.sub(
        lambda found: f"{found['open']}{TABLES[found['name']]()}\n{found['close']}", text
    )


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case [name] if name in TABLES:
            print(TABLES[name]())
        case ["write", file]:
            path = Path(file)
            path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
        case _:
            names = " | ".join(TABLES)
            print(f"usage: python -m drayd.reference {names} | write FILE", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
