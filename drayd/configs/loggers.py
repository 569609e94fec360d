"""The BROKER_LOGGER resource: how much this process logs. It is not stored; a restart forgets it.

Kafka has one logger per class; Dray has one, `root`, whose start value is `log.level`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from drayd.configs.brokers import Entry
from drayd.configs.changes import Change, Operation
from drayd.configs.values import Source, Type
from protocol.errors import ErrorCode, KafkaError

ROOT = "root"
# Kafka's names of levels, for those that Python has too.
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def entries() -> Iterable[Entry]:
    level = logging.getLogger().getEffectiveLevel()
    name = next((name for name, value in _LEVELS.items() if value >= level and name != "TRACE"), "")
    yield Entry(ROOT, name or "FATAL", Type.UNKNOWN, Source.BROKER_LOGGER, (), "")


def alter(wanted: Sequence[Change], *, validate_only: bool) -> None:
    """KafkaError if something is wrong; then nothing is changed."""
    for change in wanted:
        _check(change)
    if validate_only:
        return
    for change in wanted:
        logging.getLogger().setLevel(_LEVELS[change.value or ""])


def _check(change: Change) -> None:
    if change.operation in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"{Operation(change.operation).name} operation is not allowed for the "
            "BROKER_LOGGER resource",
        )
    if change.operation not in tuple(Operation):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unknown operation type {change.operation} is not allowed for the "
            "BROKER_LOGGER resource",
        )
    if change.name != ROOT:
        raise KafkaError(ErrorCode.invalid_config, f"Logger {change.name} does not exist!")
    if change.operation == Operation.DELETE:
        raise KafkaError(
            ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed"
        )
    if change.value not in _LEVELS:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a "
            "supported log level. Valid log levels are "
            "DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        )
