"""Structured logs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from drayd import logs


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.NOTSET)


def json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    logs.configure("info", "auto", stream)
    logs.get("drayd.test").info("closed the connection", reason="idle", bytes=12, ok=True)
    (line,) = json_lines(stream)
    assert str(line.pop("time")).endswith("Z")
    assert line == {
        "level": "info",
        "logger": "drayd.test",
        "message": "closed the connection",
        "reason": "idle",
        "bytes": 12,
        "ok": True,
    }


def test_readable_lines_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.configure("info", "auto", stream)
    logs.get("drayd.test").warning("slow", took_ms=31, client="a b")
    line = stream.getvalue()
    assert line.endswith('WARNING drayd.test  slow  took_ms=31 client="a b"\n')
    monkeypatch.delenv("NO_COLOR")
    logs.configure("info", "human", stream)
    logs.get("drayd.test").warning("slow")
    assert "\x1b[33mWARNING" in stream.getvalue()


def test_the_format_can_be_chosen() -> None:
    stream = Terminal()
    logs.configure("info", "json", stream)
    logs.get("x").info("hello")
    assert json_lines(stream)[0]["message"] == "hello"
    stream = Terminal()
    plain = io.StringIO()
    logs.configure("info", "human", plain)
    logs.get("x").info("hello")
    assert plain.getvalue().endswith("INFO    x  hello\n")


def test_levels() -> None:
    stream = io.StringIO()
    logs.configure("warning", "json", stream)
    log = logs.get("drayd.levels")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line["message"] for line in json_lines(stream)] == ["c", "d"]
    assert not log.enabled(logging.INFO)
    logs.configure("debug", "json", stream)
    log.debug("e")
    assert json_lines(stream)[-1]["level"] == "debug"


def test_bound_fields_are_added_and_taken_back() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    log = logs.get("x")
    with logs.bound(connection="127.0.0.1:5"):
        token = logs.bind(correlation_id=7, api="Produce")
        log.info("one", api="Fetch")
        logs.unbind(token)
        log.info("two")
    log.info("three")
    one, two, three = json_lines(stream)
    assert (one["connection"], one["correlation_id"], one["api"]) == ("127.0.0.1:5", 7, "Fetch")
    assert two["connection"] == "127.0.0.1:5"
    assert "correlation_id" not in two
    assert "connection" not in three


async def test_tasks_have_their_own_fields() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    both_bound = asyncio.Barrier(2)

    async def connection(name: str) -> None:
        logs.bind(connection=name)
        await both_bound.wait()
        logs.get("x").info(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(connection("a"))
        group.create_task(connection("b"))
    assert {(line["message"], line["connection"]) for line in json_lines(stream)} == {
        ("a", "a"),
        ("b", "b"),
    }


@pytest.mark.parametrize("format_name", ["json", "human"])
def test_payloads_never_show(format_name: str) -> None:
    stream = io.StringIO()
    logs.configure("info", format_name, stream)
    log = logs.get("x")
    log.info("got", a=b"secret", b=bytearray(b"secret"), c=memoryview(b"secret"))
    assert "secret" not in stream.getvalue()
    assert stream.getvalue().count("<6 bytes>") == 3


@pytest.mark.parametrize("format_name", ["json", "human"])
def test_clients_cannot_forge_lines(format_name: str) -> None:
    stream = io.StringIO()
    logs.configure("info", format_name, stream)
    evil = 'x\n12:00:00 ERROR forged\r\x1b[2J\u2028"'
    logs.get("x").info("hello", client_id=evil)
    logging.getLogger("library").warning("said %s", evil)
    text = stream.getvalue()
    assert len(text.split("\n")) == 3
    assert "\x1b" not in text
    assert "\r" not in text


def test_long_values_are_cut() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logs.get("x").info("hello", client_id="y" * 10_000)
    assert len(stream.getvalue()) < 1000


def test_a_field_does_not_hide_the_message() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logs.get("x").info("real", level="fake", time=1)
    (line,) = json_lines(stream)
    assert line["level"] == "info"
    assert line["level_"] == "fake"


@pytest.mark.parametrize("format_name", ["json", "human"])
def test_exceptions_have_tracebacks(format_name: str) -> None:
    stream = io.StringIO()
    logs.configure("info", format_name, stream)
    try:
        raise ValueError("broken")
    except ValueError as error:
        logs.get("x").exception("failed", error, api="Fetch")
    assert "Traceback" in stream.getvalue()
    assert "ValueError: broken" in stream.getvalue()


def test_libraries_are_logged_too_and_uvicorn_is_quiet() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    with logs.bound(connection="c"):
        logging.getLogger("asyncio").warning("took %d ms", 5)
    logging.getLogger("uvicorn.error").info("Started server process")
    (line,) = json_lines(stream)
    assert (line["message"], line["connection"]) == ("took 5 ms", "c")
