"""The composition root: settings become components, components become a running broker.

Start: lock the data folder, open the stores, load the topics, run the writers, listen. End, on
SIGTERM or SIGINT: stop accepting and reading, flush, commit, answer, close; within
`shutdown.timeout_ms`, after which what wasn't acknowledged is left to the clients to repeat.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import UUID, uuid4

import uvloop

from compactor import Collector
from compactor import Policy as CollectionPolicy
from drayd import __version__
from drayd.banner import banner
from drayd.broker import Broker, Node
from drayd.cache import Cache
from drayd.config import ConfigError, Settings, sqlite_path
from drayd.configs.service import ConfigService
from drayd.connection_limits import ConnectionLimits
from drayd.coordinator import Coordinator
from drayd.coordinator import Policy as GroupPolicy
from drayd.coordinator_topics import RegisteredTopics
from drayd.datadir import DataDir
from drayd.dispatch import Dispatcher
from drayd.fetch import Fetcher
from drayd.fetch_sessions import FetchSessions
from drayd.group_settings import of_group
from drayd.http import HttpServer
from drayd.kinds import HostPort
from drayd.logs import Logger
from drayd.membership import Membership
from drayd.memory import keep_freed_memory, look_for_cycles_seldom
from drayd.metrics import Metrics
from drayd.names import MAX_AGE_MS, MarkedNames
from drayd.produce import DomainSink, DomainWriter
from drayd.quota_rates import Windows
from drayd.quotas import ClientQuotas
from drayd.server import Server
from drayd.sockets import addresses
from drayd.topics import TopicService
from drayd.trimming import Trimmer
from drayd.waiters import Waiters
from metadata import keys
from metadata.cluster import Numbers, cluster_id
from metadata.configs import StoredConfigs
from metadata.groups import Groups
from metadata.memory import MemoryStore
from metadata.sqlite import SqliteStore
from metadata.store import MetadataStore, StoreError
from metadata.streams import DomainLog
from metadata.topics import Topics
from metadata.values import Broker as BrokerRecord
from wal.buffer import Buffer
from wal.delayed import Delayed
from wal.objectstore import NotFound, ObjectStore, ObjectStoreError, open_store
from wal.observed import Observed
from wal.reader import Reader
from wal.writer import Policy

log = Logger(__name__)

# What one metadata commit may grow to; some stores take 4 MB a message.
MAX_COMMIT_BYTES = 2 * 1024 * 1024
PRODUCER_ID_BLOCK = 1000
MINUTE_MS = 60_000
SWITCH_INTERVAL_S = 0.001
PROBE_PATH = "probe/absent"

OpenMetadata = Callable[[Settings, Metrics], Awaitable[MetadataStore]]
OpenObjects = Callable[[Settings, Metrics], ObjectStore]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock_ms() -> int:
    """A clock that nobody sets."""
    return time.monotonic_ns() // 1_000_000


async def open_metadata(settings: Settings, metrics: Metrics) -> MetadataStore:
    url = settings.metadata_url
    if url.startswith("memory:"):
        return MemoryStore()

    try:
        return await SqliteStore.open(sqlite_path(url), observe=metrics.observe_metadata)
    except StoreError as error:
        raise ConfigError(f"The metadata store {url} can't be opened: {error}") from error


def open_objects(settings: Settings, metrics: Metrics) -> ObjectStore:
    try:
        store = open_store(settings.storage_url)
    except (ValueError, ObjectStoreError) as error:
        raise ConfigError(f"The object store can't be opened: {error}") from error
    if settings.storage_delay_put_ms or settings.storage_delay_get_ms:
        store = Delayed(
            store, put_ms=settings.storage_delay_put_ms, get_ms=settings.storage_delay_get_ms
        )
    return Observed(store, metrics.observe_object_store)


@dataclass(slots=True)
class Running:
    """A broker that serves."""

    broker: Broker
    server: Server
    address: HostPort
    http: HttpServer | None


@asynccontextmanager
async def serve(
    settings: Settings,
    *,
    metadata: OpenMetadata = open_metadata,
    objects: OpenObjects = open_objects,
) -> AsyncIterator[Running]:
    """A broker for the length of the block; leaving it drains."""
    async with AsyncExitStack() as stack:
        if settings.uses_data_dir:
            stack.enter_context(DataDir.open(settings.data_dir))
        metrics = Metrics()
        store = await metadata(settings, metrics)
        stack.push_async_callback(store.close)
        object_store = objects(settings, metrics)
        stack.push_async_callback(object_store.close)
        tasks = await stack.enter_async_context(_background())
        membership = Membership(store, settings.broker_id)
        broker, names = await _broker(settings, metrics, store, object_store, membership)
        for writer in broker.writers:
            tasks.create_task(writer.run())
        tasks.create_task(broker.configs.follow())
        tasks.create_task(broker.topics.follow())
        tasks.create_task(broker.topics.purge_deleted())
        tasks.create_task(broker.quotas.follow())
        tasks.create_task(broker.trimmer.run())
        server = Server(
            Dispatcher(broker),
            metrics,
            max_request_bytes=settings.socket_request_max_bytes,
            max_queued_bytes=settings.queued_max_request_bytes,
            max_idle_ms=settings.connections_max_idle_ms,
            limits=_connection_limits(settings, broker),
            backlog=settings.socket_listen_backlog_size,
        )
        tasks.create_task(server.close_idle())
        address = settings.advertised(server.bind(settings.listen))
        broker.node = Node(settings.broker_id, address.host, address.port, settings.zone or None)
        incarnation = names[0].incarnation
        await membership.join(lambda name: _record(settings, address, incarnation, name))
        stack.push_async_callback(membership.close)
        tasks.create_task(membership.run())
        tasks.create_task(broker.groups.run())
        http = None
        if settings.http_listen is not None:
            http = await HttpServer.start(
                settings.http_listen, metrics, lambda: _checks(store, object_store)
            )
            stack.push_async_callback(http.close)
        collector = _collector(settings, store, object_store, broker, incarnation)
        tasks.create_task(collector.run())
        _watch_gauges(broker, server, collector)
        _apply_changes(broker, server, collector)
        await server.accept()
        try:
            yield Running(broker, server, address, http)
        finally:
            await _drain(settings, broker, server, names)


class _Ended(Exception):
    """Ends the tasks of a group together with the block that they serve."""


@asynccontextmanager
async def _background() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose tasks run until the block ends; if one of them fails, so does it."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
            raise _Ended
    except* _Ended:
        pass


async def _broker(
    settings: Settings,
    metrics: Metrics,
    store: MetadataStore,
    objects: ObjectStore,
    membership: Membership,
) -> tuple[Broker, list[MarkedNames]]:
    cache = Cache(
        hot_max_bytes=settings.cache_hot_max_bytes, cold_max_bytes=settings.cache_cold_max_bytes
    )
    waiters = Waiters()
    incarnation = uuid4().hex
    domains: list[DomainLog] = []
    writers: list[DomainWriter] = []
    all_names: list[MarkedNames] = []
    policy = Policy(
        linger_ms=settings.wal_flush_linger_ms,
        min_linger_ms=settings.wal_flush_min_linger_ms,
        max_in_flight=settings.wal_flush_max_in_flight,
        put_timeout_s=settings.wal_put_timeout_ms / 1000,
        hedge_after_s=settings.wal_put_hedge_ms / 1000 if settings.wal_put_hedge_ms else None,
    )

    def observe_flush(size: int, seconds: float) -> None:
        metrics.wal_flush_bytes.observe(size)
        metrics.wal_flush_seconds.observe(seconds)

    for number in range(settings.num_domains):
        domain = DomainLog(
            store,
            number,
            now_ms=now_ms,
            producer_expiration_ms=settings.producer_id_expiration_ms,
            garbage_grace_ms=settings.wal_gc_grace_ms,
            on_retry=metrics.commit_retries.inc,
            on_unknown=metrics.commit_unknown.inc,
        )
        names = MarkedNames(
            domain,
            broker_id=settings.broker_id,
            incarnation=incarnation,
            zone=settings.zone,
            range_size=settings.wal_marker_range,
            now_ms=now_ms,
        )
        writers.append(
            DomainWriter(
                number,
                Buffer(max_bytes=settings.wal_flush_max_bytes, max_commit_bytes=MAX_COMMIT_BYTES),
                objects,
                names,
                DomainSink(domain, cache, waiters, metrics),
                policy,
                now_ms=now_ms,
                observe_flush=observe_flush,
                on_retry=metrics.wal_put_retries.inc,
            )
        )
        domains.append(domain)
        all_names.append(names)
    registry = Topics(store, domains, now_ms=now_ms, garbage_grace_ms=settings.wal_gc_grace_ms)
    configs = ConfigService(settings, StoredConfigs(store), registry)
    await configs.load()
    topics = TopicService(registry, settings, cache, waiters, now_ms, configs)
    await topics.load()
    windows = Windows(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
    quotas = ClientQuotas(store, windows, _clock_ms)
    await quotas.load()
    broker = Broker(
        settings=settings,
        metrics=metrics,
        cluster_id=await cluster_id(store, _new_cluster_id, now_ms()),
        node=Node(settings.broker_id, "", 0, None),
        configs=configs,
        topics=topics,
        domains=domains,
        writers=writers,
        fetcher=Fetcher(
            domains,
            cache,
            Reader(objects),
            metrics,
            read_ahead_bytes=settings.fetch_read_ahead_bytes,
        ),
        sessions=FetchSessions(settings.max_incremental_fetch_session_cache_slots),
        waiters=waiters,
        producer_ids=Numbers(store, "producer-id", PRODUCER_ID_BLOCK),
        groups=_coordinator(settings, metrics, store, registry, membership, configs),
        cache=cache,
        trimmer=Trimmer(domains, cache, waiters),
        now_ms=now_ms,
        quotas=quotas,
    )
    return broker, all_names


def _coordinator(
    settings: Settings,
    metrics: Metrics,
    store: MetadataStore,
    registry: Topics,
    membership: Membership,
    configs: ConfigService,
) -> Coordinator:
    async def topic_exists(topic_id: UUID) -> bool:
        return await registry.find_id(topic_id) is not None

    coordinator = Coordinator(
        Groups(store, now_ms=now_ms),
        membership,
        RegisteredTopics(registry),
        topic_exists,
        of_group(settings, configs.group_config),
        metrics,
        GroupPolicy(
            retention_ms=settings.offsets_retention_minutes * MINUTE_MS,
            check_interval_ms=settings.offsets_retention_check_interval_ms,
        ),
        clock_ms=lambda: time.monotonic_ns() // 1_000_000,
        now_ms=now_ms,
    )
    registry.on_removed = coordinator.topic_deleted
    metrics.watch_groups(coordinator.count)
    return coordinator


def _connection_limits(settings: Settings, broker: Broker) -> ConnectionLimits:
    return ConnectionLimits(
        max_connections=settings.max_connections,
        max_per_address=settings.max_connections_per_ip,
        overrides=addresses(settings.max_connections_per_ip_overrides),
        max_per_second=settings.max_connection_creation_rate,
        windows=broker.quotas.windows,
        quota=lambda: broker.quotas.connections,
    )


def _collector(
    settings: Settings,
    store: MetadataStore,
    objects: ObjectStore,
    broker: Broker,
    incarnation: str,
) -> Collector:
    policy = CollectionPolicy(
        cluster_id=broker.cluster_id,
        incarnation=incarnation,
        # The lock on the SQLite file proves that every other process is gone, with its writes.
        sole_owner=settings.metadata_url.startswith("sqlite:")
        and settings.storage_url.startswith("file:"),
        interval_ms=settings.wal_gc_interval_ms,
        sweep_interval_ms=settings.wal_sweep_interval_ms,
        producer_check_interval_ms=settings.producer_id_expiration_check_interval_ms,
        orphan_ttl_ms=settings.wal_orphan_ttl_ms,
        grace_ms=settings.wal_gc_grace_ms,
        range_life_ms=MAX_AGE_MS,
        producer_expiration_ms=settings.producer_id_expiration_ms,
    )
    return Collector(store, objects, broker.domains, policy, now_ms=now_ms)


def _new_cluster_id() -> str:
    """As Kafka's: a random UUID in 22 characters."""
    return base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def _record(
    settings: Settings, address: HostPort, incarnation: str, registration: str
) -> BrokerRecord:
    return BrokerRecord(
        broker_id=settings.broker_id,
        host=address.host,
        port=address.port,
        zone=settings.zone,
        incarnation=incarnation,
        started_ms=now_ms(),
        version=__version__,
        registration=registration,
    )


def _apply_changes(broker: Broker, server: Server, collector: Collector) -> None:
    """Settings that can be changed while the broker runs take effect where they are used. (The
    defaults of topics are looked up whenever a topic is.)"""

    def apply() -> None:
        server.limits.max_connections = broker.configs.value("max.connections")
        expiration_ms = broker.configs.value("producer.id.expiration.ms")
        collector.producer_expiration_ms = expiration_ms
        for domain in broker.domains:
            domain.producer_expiration_ms = expiration_ms

    apply()
    broker.configs.on_broker_change(apply)


def _watch_gauges(broker: Broker, server: Server, collector: Collector) -> None:
    """Gauges that are looked up when they are scraped."""
    metrics = broker.metrics
    metrics.gc_orphans.set_function(lambda: collector.backlog.orphans)
    metrics.gc_pending_deletes.set_function(lambda: collector.backlog.pending_deletes)
    metrics.hot_cache_bytes.set_function(lambda: broker.cache.hot_bytes)
    metrics.requests_waiting_bytes.set_function(lambda: server.budget.used)
    metrics.wal_objects_in_flight.set_function(
        lambda: sum(writer.in_flight for writer in broker.writers)
    )
    metrics.wal_buffered_bytes.set_function(
        lambda: sum(writer.buffered_bytes for writer in broker.writers)
    )


async def _checks(store: MetadataStore, objects: ObjectStore) -> Mapping[str, str]:
    results = {"metadata": "ok", "storage": "ok"}
    try:
        await store.get(keys.CLUSTER_ID, scope=keys.CLUSTER_SCOPE)
    except StoreError as error:
        results["metadata"] = str(error)
    try:
        await objects.head(PROBE_PATH)
    except NotFound:
        pass
    except ObjectStoreError as error:
        results["storage"] = str(error)
    return results


async def _drain(
    settings: Settings, broker: Broker, server: Server, names: list[MarkedNames]
) -> None:
    log.info("shutting down")
    server.stop_accepting()
    broker.waiters.close()
    try:
        async with asyncio.timeout(settings.shutdown_timeout_ms / 1000):
            for writer in broker.writers:
                await writer.drain()
            await broker.groups.close()
            await server.drain()
            for each in names:
                await each.close()
    except TimeoutError:
        log.warning(
            "some requests were not answered within shutdown.timeout_ms; "
            "what was not acknowledged will be sent again by its client"
        )
    await server.close()
    await broker.fetcher.close()


async def _main(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve(settings) as running:
        look_for_cycles_seldom()
        http = None if running.http is None else running.http.address
        print(banner(settings, advertised=running.address, http=http), flush=True)
        await stop.wait()
        for number in (signal.SIGTERM, signal.SIGINT):
            # A second signal ends the process at once; nothing acknowledged is lost by that.
            loop.remove_signal_handler(number)
    log.info("stopped")


def run(settings: Settings, role: str) -> int:
    """Runs until SIGTERM or SIGINT. `role` is "start" or "broker": for now they are the same."""
    keep_freed_memory()
    # A thread that comes back from the disk waits this long for a busy event loop to let go of
    # the interpreter, several times per commit. Python's 5 ms make a commit slow under load;
    # much less than 1 ms costs a third of the throughput.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if sys.version_info < (3, 12):
        uvloop.install()
        asyncio.run(_main(settings))
    else:
        uvloop.run(_main(settings))
    return 0
