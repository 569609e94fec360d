"""Failures end at the dispatcher: in an answer where the API has a place for it, else in the end of
the connection, and never in a connection that waits for ever."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drayd.broker import Broker
from drayd.call import Call
from drayd.connection import Answer, Connection
from drayd.dispatch import APIS, Dispatcher
from drayd.metrics import Metrics
from protocol.errors import Malformed
from protocol.frames import RequestHead

PRODUCE, INIT_PRODUCER_ID = 0, 22


def replied(key: int, version: int, result: asyncio.Future[Any]) -> asyncio.Future[Answer]:
    quotas = SimpleNamespace(request=None, produce=None)
    broker = cast(Broker, SimpleNamespace(metrics=Metrics(), quotas=quotas))
    dispatcher = Dispatcher(broker)
    api = next(api for api in APIS if api.key == key)
    head = RequestHead(key, version, 7, "client", 0)
    call = Call(broker, cast(Connection, None), head, None, 100)
    reply = dispatcher._reply(call, api, 0.0, result)
    assert isinstance(reply, asyncio.Future)
    return reply


async def failing() -> Any:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("in_a_task", [False, True])
async def test_a_failure_that_cannot_be_answered_ends_the_connection(in_a_task: bool) -> None:
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()
    if in_a_task:
        result = loop.create_task(failing())
    else:
        result.set_exception(RuntimeError("a bug"))
    async with asyncio.timeout(10):
        with pytest.raises(Malformed):
            await replied(PRODUCE, 9, result)


@pytest.mark.parametrize("in_a_task", [False, True])
async def test_a_failure_that_can_be_answered_is(in_a_task: bool) -> None:
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()
    if in_a_task:
        result = loop.create_task(failing())
    else:
        result.set_exception(RuntimeError("a bug"))
    async with asyncio.timeout(10):
        answer = b"".join(await replied(INIT_PRODUCER_ID, 4, result))
    # Size, correlation id, tags, throttle time, then UNKNOWN_SERVER_ERROR.
    assert answer[4:15] == bytes.fromhex("000000070000000000ffff")
