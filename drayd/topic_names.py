"""What a topic may be called."""

from __future__ import annotations

import re

from protocol.errors import ErrorCode, KafkaError

MAX_NAME_CHARACTERS = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def can_exist(name: str) -> bool:
    """Whether any topic could have this name; not every store can be asked for the others."""
    return _LEGAL.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Kafka's rules; KafkaError(INVALID_TOPIC_EXCEPTION) says which one is broken."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_CHARACTERS:
        problem = (
            f"the length of '{name}' is longer than the max allowed length {MAX_NAME_CHARACTERS}"
        )
    elif not _LEGAL.fullmatch(name):
        problem = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    if problem is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}")
