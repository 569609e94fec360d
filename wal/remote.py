"""Objects in S3, Google Cloud Storage, Azure or memory, through obstore.

A put is one conditional request (`If-None-Match: *`), never a multipart upload: those are not
create-only, and leave invisible parts behind. obstore repeats requests that failed in a way
which repeating may cure; what it gives up on is `Unavailable`.

- A put whose answer was lost and which was repeated meets its own object: `AlreadyExists`.
  Callers that use a path for one attempt only may take that as success. S3 also answers
  "conflict" while another put of the path is still undecided, and obstore calls that
  AlreadyExists too; so the object is looked for before we do.
- Missing permissions are `Unavailable`: an operator can grant them while we retry.
- `requests` counts calls by kind, because each of them is on the bill.

`memory://` is a real store of its own for tests; each opening is a new, empty one.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeVar, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from wal.objectstore import (
    AlreadyExists,
    Buffer,
    NotFound,
    ObjectInfo,
    Unavailable,
    check_path,
    check_prefix,
    check_range,
)

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config
    from obstore.store import ObjectStore as Backend

T = TypeVar("T")

Request = Literal["put", "get", "head", "delete", "list"]

# Joining more than this would hold up the event loop for a noticeable time.
_JOIN_INLINE_BYTES = 256 * 1024
_LIST_PAGE = 1000

# Options for the HTTP client; every other one is a setting of the store itself.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class RemoteStore:
    """An ObjectStore over one bucket or container, below an optional prefix."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        self._name = name
        self.requests: Counter[Request] = Counter()

    @classmethod
    def open(cls, url: str, *, options: Mapping[str, str] | None = None) -> RemoteStore:
        """Open `s3://`, `gs://`, `az://` or `memory://`; nothing is sent yet.

        Credentials and settings come from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`);
        `options` win over it: obstore's names without prefix (`endpoint`, `region`,
        `virtual_hosted_style_request`, …), those of the HTTP client (`allow_http`, `timeout`,
        `connect_timeout`, …), and `max_retries` and `retry_timeout_ms`.
        """
        given = dict(options or {})
        retry: RetryConfig = {
            "max_retries": int(given.pop("max_retries", "3")),
            "retry_timeout": timedelta(milliseconds=int(given.pop("retry_timeout_ms", "20000"))),
        }
        client: dict[str, str] = {"timeout": "30s", "connect_timeout": "5s"}
        if _plain_http(given):
            client["allow_http"] = "true"
        for key in _CLIENT_OPTIONS & given.keys():
            client[key] = given.pop(key)
        try:
            backend = _open_backend(url, given, client, retry)
        except (BaseError, ValueError) as error:
            raise ValueError(f"storage url {url!r}: {_sentence(error)}") from error
        return cls(backend, url)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        check_path(path)
        if sum(map(len, parts)) > _JOIN_INLINE_BYTES:
            data = await asyncio.to_thread(b"".join, parts)
        else:
            data = b"".join(parts)
        try:
            await self._ask(
                "put",
                path,
                obstore.put_async(self._backend, path, data, mode="create", use_multipart=False),
            )
        except NotFound as error:
            raise Unavailable(f"{self._name} does not exist") from error
        except AlreadyExists:
            try:
                await self.head(path)
            except NotFound as error:
                raise Unavailable(f"a put of {path} is still undecided elsewhere") from error
            raise

    async def get(self, path: str) -> bytes:
        check_path(path)
        answer = await self._ask("get", path, obstore.get_async(self._backend, path))
        return bytes(await self._translate(path, answer.bytes_async()))

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        check_path(path)
        check_range(start, length)
        if length == 0:
            await self.head(path)
            return b""
        try:
            data = await self._ask(
                "get",
                path,
                obstore.get_range_async(self._backend, path, start=start, length=length),
            )
        except Unavailable:
            # A range that begins past the end is an error there, not an empty answer.
            if start < (await self.head(path)).size:
                raise
            return b""
        return memoryview(data)

    async def head(self, path: str) -> ObjectInfo:
        check_path(path)
        meta = await self._ask("head", path, obstore.head_async(self._backend, path))
        return ObjectInfo(path, meta["size"], _ms(meta["last_modified"]))

    async def delete(self, path: str) -> None:
        check_path(path)
        try:
            await self._ask("delete", path, obstore.delete_async(self._backend, path))
        except NotFound:
            return

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        folder = check_prefix(prefix)
        pages = obstore.list(self._backend, folder or None, chunk_size=_LIST_PAGE)
        while True:
            try:
                page = await self._ask("list", folder, pages.__anext__())
            except StopAsyncIteration:
                return
            for meta in page:
                yield ObjectInfo(meta["path"], meta["size"], _ms(meta["last_modified"]))

    async def close(self) -> None:
        """Nothing to give up: connections close with the process or the last reference."""

    async def _ask(self, kind: Request, path: str, answer: Awaitable[T]) -> T:
        self.requests[kind] += 1
        return await self._translate(path, answer)

    async def _translate(self, path: str, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except FileNotFoundError as error:
            raise NotFound(f"object {path} does not exist in {self._name}") from error
        except AlreadyExistsError as error:
            raise AlreadyExists(f"object {path} exists already in {self._name}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(f"{self._name}, object {path}: {_sentence(error)}") from error


def _open_backend(
    url: str, config: Mapping[str, str], client: Mapping[str, str], retry: RetryConfig
) -> Backend:
    # obstore checks keys and values itself, more closely than these casts pretend to.
    http = cast("ClientConfig", client)
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryStore()
    if scheme == "s3":
        s3 = cast("S3Config", config)
        return S3Store.from_url(url, config=s3, client_options=http, retry_config=retry)
    if scheme == "gs":
        gcs = cast("GCSConfig", config)
        return GCSStore.from_url(url, config=gcs, client_options=http, retry_config=retry)
    azure = cast("AzureConfig", config)
    return AzureStore.from_url(url, config=azure, client_options=http, retry_config=retry)


def _plain_http(options: Mapping[str, str]) -> bool:
    """Whether an operator asked for HTTP without TLS, which obstore refuses otherwise.

    Our client options replace what obstore reads from the environment, so that is read here.
    """
    if os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1"):
        return True
    endpoints = (options.get("endpoint", ""), *map(os.environ.get, _ENDPOINT_VARIABLES))
    return any(endpoint and endpoint.startswith("http://") for endpoint in endpoints)


def _sentence(error: BaseException) -> str:
    """The first line; obstore adds a dump of its internals below."""
    return str(error).split("\n", 1)[0]


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
