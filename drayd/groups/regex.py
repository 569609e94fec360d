"""Regular expressions that members subscribe with (KIP-848): RE2's syntax, a whole name to match.

A match takes time linear in the name, whatever the expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2

MAX_PROGRAM_BYTES = 8 << 20

# RE2 for C++, which this is, names some mistakes otherwise than RE2/J, which Kafka uses.
_KAFKA_WORDS = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
    "invalid named capture group": "invalid named capture",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
}


class InvalidRegex(ValueError):
    """Not an RE2 expression; the message says why, in Kafka's words where they are known."""


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        raise InvalidRegex(_in_kafkas_words(error)) from None


def check(expression: str) -> None:
    """InvalidRegex if it isn't one."""
    _compiled(expression)


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    compiled = _compiled(expression)
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)


def _in_kafkas_words(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    what = text.split(": ", 1)[0].strip()
    return _KAFKA_WORDS.get(what, what)
