"""The HTTP port: /metrics, /healthz and /readyz.

Starlette on uvicorn, as one more task of the broker's event loop. Import this module late: it
brings 20 MB with it, and a broker answers Kafka clients without it.

Invariants: signals stay the broker's (uvicorn installs no handler); port 0 is resolved before
`start` returns; after `close` nothing of it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping

import uvicorn
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from drayd import __version__
from drayd.kinds import HostPort
from drayd.metrics import Metrics
from drayd.sockets import bound_port, open_listeners

READY_TIMEOUT_SECONDS = 5.0

# Each check by name, with "ok" or one sentence that says what is wrong.
Checks = Callable[[], Awaitable[Mapping[str, str]]]

_INDEX = """Dray {version}

/metrics   Prometheus metrics
/healthz   200 while the process is alive
/readyz    200 when clients can be served, else 503 with the reason
"""


def make_app(metrics: Metrics, checks: Checks) -> Starlette:
    """The routes; apart from the server, so that tests can call them."""

    async def index(_: Request) -> Response:
        return PlainTextResponse(_INDEX.format(version=__version__))

    async def show_metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers={"content-type": content_type})

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(_: Request) -> Response:
        try:
            results = dict(await asyncio.wait_for(checks(), READY_TIMEOUT_SECONDS))
        except TimeoutError:
            results = {"checks": f"no answer within {READY_TIMEOUT_SECONDS:g} s"}
        ready = all(result == "ok" for result in results.values())
        return JSONResponse(
            {"status": "ready" if ready else "not ready", "checks": results},
            status_code=200 if ready else 503,
        )

    return Starlette(
        routes=[
            Route("/", index),
            Route("/metrics", show_metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ]
    )


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, and with an event for "started"."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class HttpServer:
    """The server as a component: `start`, `address`, `close`."""

    def __init__(self, app: Starlette, server: _Server, address: HostPort) -> None:
        self.app = app
        self.address = address
        self._server = server
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, listen: HostPort, metrics: Metrics, checks: Checks) -> HttpServer:
        """Serve on `listen`; raises ListenError when that can't be had."""
        app = make_app(metrics, checks)
        listeners = open_listeners(listen, backlog=128)
        config = uvicorn.Config(
            app,
            loop="none",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
        uvicorn_server = _Server(config)
        server = cls(app, uvicorn_server, HostPort(listen.host, bound_port(listeners)))
        server._task = asyncio.create_task(uvicorn_server.serve(listeners), name="http")
        started = asyncio.create_task(uvicorn_server.ready.wait())
        try:
            await asyncio.wait({started, server._task}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await server.close()
            raise
        finally:
            started.cancel()
        if server._task.done():
            for listener in listeners:
                listener.close()
            await server._task
            raise RuntimeError("the HTTP server stopped while it was starting")
        return server

    async def close(self) -> None:
        """Stop accepting, let running requests end, and return when all is closed."""
        if self._task is not None:
            self._server.should_exit = True
            task, self._task = self._task, None
            await task
