"""From a frame to a handler and back. `APIS` is the one table of what Dray speaks: it drives
routing, ApiVersions and the README.

Failures end here: a `KafkaError` becomes the response's error code, the unexpected becomes
UNKNOWN_SERVER_ERROR with a traceback in the log, and what can't be understood or answered closes
its connection (as Apache Kafka does) and nothing else.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from drayd import handlers
from drayd.broker import Broker
from drayd.call import Call, Result
from drayd.connection import Answer, Connection, Reply, Unanswered
from drayd.handlers import k00_produce, k18_api_versions
from drayd.logs import Logger
from drayd.work import Work
from protocol.empty import empty
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.frames import RequestHead, frame_response, read_head
from protocol.messages import has_field, request_class, response_class
from protocol.reader import read_message

log = Logger(__name__)

# A file of `handlers/` is an API, named by its key.
MODULES: tuple[ModuleType, ...] = tuple(
    import_module(f"{handlers.__name__}.{module.name}")
    for module in iter_modules(handlers.__path__)
    if re.match(r"k\d\d_", module.name)
)


class Api(NamedTuple):
    key: int
    name: str
    advertised_min: int
    min_version: int
    max_version: int
    handle: Callable[[Call], Coroutine[Any, Any, Result]]


def _api(module: ModuleType) -> Api:
    versions: range = module.VERSIONS
    advertised = getattr(module, "ADVERTISED_MIN", versions.start)
    return Api(
        module.KEY, module.NAME, advertised, versions.start, versions.stop - 1, module.handle
    )


APIS: tuple[Api, ...] = tuple(_api(module) for module in MODULES)
_BY_KEY = {api.key: api for api in APIS}
k18_api_versions.TABLE.extend((api.key, api.advertised_min, api.max_version) for api in APIS)


class Dispatcher:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, connection: Connection, frame: memoryview) -> Reply:
        started = time.perf_counter()
        head = read_head(frame)
        connection.client_id = head.client_id
        api = _BY_KEY.get(head.api_key)
        if api is None or not api.min_version <= head.api_version <= api.max_version:
            return _unsupported(head)
        request = _decode(head, frame)
        call = Call(self._broker, connection, head, request, len(frame))
        handled = api.handle(call)
        if self._broker.quotas.request is not None:
            call.work = Work()
            handled = call.work.timed(handled)
        try:
            result = await handled
        except KafkaError as error:
            return self._failed(call, api, error.code, error.message)
        except Malformed:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: one bad request ends nothing else
            return self._crashed(call, api, error)
        return self._reply(call, api, started, result)

    def _reply(self, call: Call, api: Api, started: float, result: Result) -> Reply:
        if isinstance(result, Unanswered):
            self._throttled(call, api)
            return result
        if not isinstance(result, asyncio.Future):
            return self._finish(call, api, started, result)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(finished: asyncio.Future[Any]) -> None:
            if answer.done():
                return
            if finished.cancelled():
                answer.cancel()
                return
            try:
                answer.set_result(self._settled(call, api, started, finished))
            except Malformed as unanswerable:
                # Closes the connection, rather than leave it waiting for this answer.
                answer.set_exception(unanswerable)

        def given_up(abandoned: asyncio.Future[Answer]) -> None:
            if abandoned.cancelled():
                result.cancel()

        result.add_done_callback(done)
        if isinstance(result, asyncio.Task):
            # A fetch ends with its connection; what was produced goes on.
            answer.add_done_callback(given_up)
        return answer

    def _settled(
        self, call: Call, api: Api, started: float, finished: asyncio.Future[Any]
    ) -> Answer:
        try:
            return self._finish(call, api, started, finished.result())
        except KafkaError as error:
            return self._failed(call, api, error.code, error.message)
        except Exception as error:  # noqa: BLE001 - the boundary, as above
            return self._crashed(call, api, error)

    def _finish(self, call: Call, api: Api, started: float, entity: Any) -> Answer:
        head = call.head
        self._broker.metrics.request_seconds[api.name].observe(time.perf_counter() - started)
        if log.enabled(10):
            log.debug(
                "answered",
                api=api.name,
                version=head.api_version,
                correlation_id=head.correlation_id,
                client_id=head.client_id,
            )
        throttle_ms = self._throttled(call, api)
        if throttle_ms and has_field(type(entity), "throttle_time"):
            entity = replace(entity, throttle_time=throttle_ms)
        version = int(type(entity).__version__)
        return frame_response(head.api_key, version, head.correlation_id, entity)

    def _throttled(self, call: Call, api: Api) -> int:
        """Counts a request against its client's quotas; for how many milliseconds the client is
        to wait now. It gets its answer at once, and isn't read from meanwhile (KIP-219)."""
        quotas = self._broker.quotas
        if not call.counted:
            call.counted = True
            if quotas.request is not None and call.work is not None:
                call.throttle(
                    "request", quotas.record_request(call.user, call.client_id, call.work.seconds)
                )
            if quotas.produce is not None and api.key == k00_produce.KEY:
                call.throttle(
                    "produce", quotas.record_produce(call.user, call.client_id, call.frame_bytes)
                )
        if call.throttle_ms:
            call.connection.mute(call.throttle_ms)
            self._broker.metrics.throttle_seconds[call.throttled_by].observe(
                call.throttle_ms / 1000
            )
            if log.enabled(10):
                log.debug(
                    "throttled",
                    api=api.name,
                    quota=call.throttled_by,
                    throttle_ms=call.throttle_ms,
                    client_id=call.head.client_id,
                )
        return call.throttle_ms

    def _crashed(self, call: Call, api: Api, error: Exception) -> Answer:
        head = call.head
        log.exception(
            "a request failed unexpectedly",
            error,
            api=api.name,
            version=head.api_version,
            correlation_id=head.correlation_id,
            client_id=head.client_id,
        )
        return self._failed(call, api, ErrorCode.unknown_server_error, "")

    def _failed(self, call: Call, api: Api, code: ErrorCode, message: str) -> Answer:
        self._broker.metrics.request_errors[(api.name, code.name)].inc()
        answer = _error_answer(call.head, code, message, self._throttled(call, api))
        if answer is None:
            raise Malformed(f"{api.name} failed with {code.name} and has no field for it")
        return answer


def _decode(head: RequestHead, view: memoryview) -> Any:
    cls = request_class(head.api_key, head.api_version)
    return read_message(cls, view, head.body_offset)[0]


def _unsupported(head: RequestHead) -> Answer:
    """What isn't in the table. ApiVersions is answered in version 0, so that any client learns
    what there is (KIP-511); another known API with its own error field; the rest closes."""
    if head.api_key == k18_api_versions.KEY:
        entity = k18_api_versions.unsupported_version()
        return frame_response(head.api_key, 0, head.correlation_id, entity)
    answer = None
    try:
        answer = _error_answer(head, ErrorCode.unsupported_version, "")
    except KafkaError:
        pass
    if answer is None:
        raise Malformed(f"API {head.api_key} version {head.api_version} isn't supported")
    return answer


def _error_answer(
    head: RequestHead, code: ErrorCode, message: str, throttle_ms: int = 0
) -> Answer | None:
    """A response that says only `code`, if this API has a field for it."""
    cls = response_class(head.api_key, head.api_version)
    if not has_field(cls, "error_code"):
        return None
    entity = empty(cls, error_code=code, error_message=message or None, throttle_time=throttle_ms)
    return frame_response(head.api_key, head.api_version, head.correlation_id, entity)
