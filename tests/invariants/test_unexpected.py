"""A mistake of ours in one partition's check costs that partition's request, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drayd.handlers import k00_produce
from protocol.batch import validate_produce
from protocol.errors import ErrorCode
from tests.wire.client import LATEST, PRODUCE, body_of, produce_request
from tests.wire.running import local_broker
from tests.wire.test_produce import GZIP, PLAIN, numbered


@pytest.mark.parametrize(("codec", "size"), [(PLAIN, 100), (GZIP, 100_000)], ids=["loop", "thread"])
async def test_a_check_that_fails_unexpectedly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int, size: int
) -> None:
    bad = numbered(1, size=size, codec=codec)

    def check(records: memoryview | None, **settings: Any) -> Any:
        if bytes(records or b"") == bad:
            raise ZeroDivisionError("a mistake")
        return validate_produce(records, **settings)

    monkeypatch.setattr(k00_produce, "validate_produce", check)
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        await client.create_topic("t", 4)
        sent: dict[int, bytes | None] = {
            index: bad if index == 1 else numbered(index, size=size, codec=codec)
            for index in range(4)
        }
        answer = await client.ask(PRODUCE, 9, produce_request("t", sent))
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        assert codes == [
            ErrorCode.none,
            ErrorCode.unknown_server_error,
            ErrorCode.none,
            ErrorCode.none,
        ]
        # Nothing waits for the batch that never came, on any of the partitions.
        for index in range(4):
            more = numbered(10 + index)
            before = await client.offset("t", index, LATEST)
            assert await client.produce("t", index, more) == (ErrorCode.none, before)
            log = await client.read_log("t", index)
            assert log[-1].body == body_of(more)
