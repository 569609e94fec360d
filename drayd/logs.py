"""Structured logs on the standard library's logging.

A log line is a constant sentence plus named fields: `log.info("closed", reason="idle")`. What
is known of the connection and the request at hand (peer, client id, correlation id, API) is
bound once and added to every line by itself. A terminal gets readable lines, everything else
JSON, one object a line.

Invariants: a disabled level costs one comparison. Bytes are never written, only their number,
so no payload can reach a log. Text that came from a client can't forge a line: control
characters are escaped.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TextIO

_NO_FIELDS: Mapping[str, object] = {}
_bound: ContextVar[Mapping[str, object]] = ContextVar("dray_log_fields", default=_NO_FIELDS)

_COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
_RESET = "\x1b[0m"
_LONGEST_VALUE = 500


def bind(**fields: object) -> Token[Mapping[str, object]]:
    """Add fields to every later line of this task, until `unbind`."""
    return _bound.set({**_bound.get(), **fields})


def unbind(token: Token[Mapping[str, object]]) -> None:
    """Take back what the `bind` that gave this token added."""
    _bound.reset(token)


@contextmanager
def bound(**fields: object) -> Iterator[None]:
    """`bind` for the length of a block."""
    token = bind(**fields)
    try:
        yield
    finally:
        unbind(token)


class Logger:
    """A named logger whose methods take fields as keyword arguments."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def enabled(self, level: int) -> bool:
        """Ask before gathering fields that cost something."""
        return self._logger.isEnabledFor(level)

    def debug(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, message, fields)

    def warning(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, message, fields)

    def error(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, message, fields)

    def exception(self, message: str, error: BaseException, **fields: object) -> None:
        """An error with its traceback."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, message, fields, error)

    def _emit(
        self,
        level: int,
        message: str,
        fields: Mapping[str, object],
        error: BaseException | None = None,
    ) -> None:
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        # No caller look-up: the logger's name says where, and walking the stack is slow.
        record = logging.LogRecord(self._logger.name, level, "", 0, message, (), exc_info)
        record.dray_fields = fields
        self._logger.handle(record)


def get(name: str) -> Logger:
    """The logger of a module: `log = logs.get(__name__)`."""
    return Logger(name)


def configure(level: str, format_name: str, stream: TextIO | None = None) -> None:
    """Send all logging of the process to one stream. `format_name`: auto, human or json."""
    stream = stream or sys.stderr
    is_terminal = stream.isatty()
    human = format_name == "human" or (format_name == "auto" and is_terminal)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        HumanFormatter(colour=is_terminal and "NO_COLOR" not in os.environ)
        if human
        else JsonFormatter()
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Its start and stop lines only repeat what the broker says itself.
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, root.level))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record):
            # A field never hides one of the four above.
            line[f"{name}_" if name in line else name] = _plain(value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class HumanFormatter(logging.Formatter):
    """`12:34:56.789 INFO  drayd.server  message  key=value`."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname:<7}"
        if self._colour and record.levelname in _COLOURS:
            level = f"{_COLOURS[record.levelname]}{level}{_RESET}"
        parts = [
            f"{clock}.{int(record.msecs):03d} {level} {record.name}",
            _one_line(record.getMessage()),
        ]
        fields = " ".join(f"{name}={_word(value)}" for name, value in _fields(record))
        if fields:
            parts.append(fields)
        line = "  ".join(parts)
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    own: Mapping[str, object] = getattr(record, "dray_fields", _NO_FIELDS)
    for name, value in _bound.get().items():
        if name not in own:
            yield name, value
    yield from own.items()


def _plain(value: object) -> object:
    """What JSON may hold: numbers as they are, everything else as text of bounded length."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, memoryview):
        return f"<{value.nbytes} bytes>"
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def _word(value: object) -> str:
    text = str(_plain(value))
    if text and text.isprintable() and not any(mark in text for mark in ' ="'):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
