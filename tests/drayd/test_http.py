"""The HTTP port, over real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Mapping

import pytest

from drayd import __version__, http
from drayd.http import HttpServer
from drayd.kinds import HostPort
from drayd.metrics import Metrics
from drayd.sockets import ListenError

LOCAL = HostPort("127.0.0.1", 0)


class Broker:
    """What the checks report."""

    def __init__(self) -> None:
        self.results: Mapping[str, str] = {"metadata": "ok", "storage": "ok"}
        self.hangs = False

    async def checks(self) -> Mapping[str, str]:
        if self.hangs:
            await asyncio.Event().wait()
        return self.results


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def server(broker: Broker, metrics: Metrics) -> AsyncIterator[HttpServer]:
    server = await HttpServer.start(LOCAL, metrics, broker.checks)
    yield server
    await server.close()


async def get(address: HostPort, path: str, headers: str = "") -> tuple[int, str, str]:
    """(status, head, body) of one request."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body


async def test_port_0_is_resolved(server: HttpServer) -> None:
    assert server.address.host == "127.0.0.1"
    assert server.address.port > 0


async def test_healthz(server: HttpServer) -> None:
    status, _, body = await get(server.address, "/healthz")
    assert status == 200
    assert json.loads(body) == {"status": "ok", "version": __version__}


async def test_readyz_is_ready_when_every_check_is_ok(server: HttpServer) -> None:
    status, _, body = await get(server.address, "/readyz")
    assert status == 200
    assert json.loads(body) == {
        "status": "ready",
        "checks": {"metadata": "ok", "storage": "ok"},
    }


async def test_readyz_says_what_is_wrong(server: HttpServer, broker: Broker) -> None:
    broker.results = {"metadata": "ok", "storage": "the disk is full"}
    status, _, body = await get(server.address, "/readyz")
    assert status == 503
    assert json.loads(body) == {
        "status": "not ready",
        "checks": {"metadata": "ok", "storage": "the disk is full"},
    }


async def test_readyz_does_not_hang(
    server: HttpServer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "READY_TIMEOUT_SECONDS", 0.05)
    broker.hangs = True
    status, _, body = await get(server.address, "/readyz")
    assert status == 503
    assert json.loads(body)["checks"] == {"checks": "no answer within 0.05 s"}


async def test_metrics(server: HttpServer, metrics: Metrics) -> None:
    metrics.produced_records.inc(3)
    status, head, body = await get(server.address, "/metrics")
    assert status == 200
    assert "content-type: text/plain; version=" in head
    assert "\ndray_produced_records_total 3.0\n" in body


async def test_metrics_in_openmetrics(server: HttpServer) -> None:
    _, head, body = await get(
        server.address, "/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n"
    )
    assert "content-type: application/openmetrics-text" in head
    assert body.rstrip().endswith("# EOF")


async def test_other_paths(server: HttpServer) -> None:
    assert (await get(server.address, "/"))[0] == 200
    assert (await get(server.address, "/nothing"))[0] == 404


async def test_a_port_in_use_is_refused(server: HttpServer, broker: Broker) -> None:
    with pytest.raises(ListenError, match="another process uses it"):
        await HttpServer.start(server.address, Metrics(), broker.checks)


async def test_signals_stay_ours(broker: Broker) -> None:
    before = signal.getsignal(signal.SIGTERM)
    server = await HttpServer.start(LOCAL, Metrics(), broker.checks)
    assert signal.getsignal(signal.SIGTERM) is before
    await server.close()
    assert signal.getsignal(signal.SIGTERM) is before


async def test_close_frees_the_port_and_leaves_no_task(broker: Broker) -> None:
    server = await HttpServer.start(LOCAL, Metrics(), broker.checks)
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    await server.close()
    await server.close()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    again = await HttpServer.start(server.address, Metrics(), broker.checks)
    await again.close()
