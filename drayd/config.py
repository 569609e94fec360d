"""Every setting of the daemon, once: key, kind, default and what it is for.

`Settings` is the typed result (`settings.wal_flush_max_bytes`), `SETTINGS` the same table as
data. Files, `DRAY_*` variables, flags, `drayd config` and the README's table are all driven by
it; a new setting is one field here. Names are Kafka's where Kafka has the setting.

Invariants: a key with its dots turned into underscores is the field's name, and in capitals
after `DRAY_` its variable; no two keys share either. Values are checked by their kind when they
are read and against each other by `check`. It is one long table on purpose: whoever looks for a
setting looks here.
"""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from drayd.kinds import (
    INT32_MAX,
    INT64_MAX,
    Address,
    Boolean,
    Choice,
    Folder,
    HostCounts,
    HostPort,
    Integer,
    Kind,
    Names,
    OptionalAddress,
    Size,
    Text,
    Url,
    millis,
)
from wal.paths import check_zone

KIB = 1024
MIB = 1024 * KIB


class ConfigError(Exception):
    """The configuration can't be used; the message is one sentence for the person who wrote it."""


def _setting(key: str, kind: Kind, default: object, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"key": key, "kind": kind, "doc": doc})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective configuration. `Settings()` is all defaults."""

    # Who and where
    broker_id: int = _setting(
        "broker.id", Integer(0), 0, "This broker's number; each broker of a cluster has its own."
    )
    zone: str = _setting(
        "zone",
        Text(r"[A-Za-z0-9._-]{0,64}", "at most 64 letters, digits, dots, dashes and underscores"),
        "",
        "The availability zone that this broker runs in; empty where there are none.",
    )
    data_dir: Path = _setting(
        "data.dir",
        Folder(),
        Path("dray-data"),
        "The folder for all that the embedded default keeps. One process at a time may use it.",
    )
    listen: HostPort = _setting(
        "listen",
        Address(),
        HostPort("localhost", 9092),
        "Where Kafka clients connect. `:9092` is every interface; port 0 picks a free port.",
    )
    advertise: HostPort | None = _setting(
        "advertise",
        OptionalAddress(connectable=True),
        None,
        "The address that clients are told to connect to. Empty: the one of `listen`, or this "
        "machine's name where that is every interface. Port 0: the port that `listen` got.",
    )
    http_listen: HostPort | None = _setting(
        "http.listen",
        OptionalAddress(),
        HostPort("localhost", 8092),
        "Where `/metrics`, `/healthz` and `/readyz` are served. Empty: nowhere.",
    )
    metadata: str = _setting(
        "metadata",
        Url(("sqlite", "memory")),
        "",
        "The metadata store: `sqlite:///absolute/path.db`, or `memory://` for tests. "
        "Empty: SQLite in `data.dir`.",
    )
    storage: str = _setting(
        "storage",
        Url(("file", "memory", "s3", "gs", "az")),
        "",
        "The object store for record bytes: `file:///absolute/folder`, `s3://bucket/prefix`, "
        "`gs://…`, `az://…`, or `memory://` for tests. Empty: a folder in `data.dir`.",
    )

    # Topics
    num_partitions: int = _setting(
        "num.partitions",
        Integer(1, 100_000),
        1,
        "Partitions of a topic that is created without a number.",
    )
    default_replication_factor: int = _setting(
        "default.replication.factor",
        Integer(1, 32767),
        1,
        "Replication factor shown for topics created without one; durability is the object "
        "store's.",
    )
    auto_create_topics_enable: bool = _setting(
        "auto.create.topics.enable",
        Boolean(),
        True,
        "Create a topic when a client that allows it asks for one that doesn't exist.",
    )
    num_domains: int = _setting(
        "num.domains",
        Integer(1, 65536),
        1,
        "MetaDomains that new streams are spread over. More of them means more commits side by "
        "side, and more PUTs.",
    )

    # The write-ahead log
    wal_flush_max_bytes: int = _setting(
        "wal.flush.max_bytes",
        Size(4 * KIB, 1024 * MIB),
        8 * MIB,
        "A WAL object is sealed when it has this many bytes.",
    )
    wal_flush_linger_ms: int = _setting(
        "wal.flush.linger_ms",
        millis(0, 60_000),
        5,
        "While other PUTs are in flight, the longest that records gather before theirs starts.",
    )
    wal_flush_min_linger_ms: int = _setting(
        "wal.flush.min_linger_ms",
        millis(0, 60_000),
        0,
        "The shortest that records gather, even when nothing is in flight. Raise it where PUTs "
        "cost money.",
    )
    wal_flush_max_in_flight: int = _setting(
        "wal.flush.max_in_flight",
        Integer(1, 1024),
        4,
        "PUTs of one MetaDomain that may run side by side.",
    )
    wal_put_timeout_ms: int = _setting(
        "wal.put.timeout_ms",
        millis(1, 3_600_000),
        20_000,
        "After this long a WAL object that couldn't be stored is given up, and its producers get "
        "an error that they retry.",
    )
    wal_put_hedge_ms: int = _setting(
        "wal.put.hedge_ms",
        millis(0, 3_600_000),
        0,
        "A PUT that takes longer is tried a second time side by side, and the faster one counts; "
        "0 never does. Of use on a far object store, where single requests stall.",
    )
    wal_marker_range: int = _setting(
        "wal.marker.range",
        Integer(1, 65536),
        256,
        "Staging markers that are reserved in one metadata commit.",
    )
    wal_orphan_ttl_ms: int = _setting(
        "wal.orphan_ttl_ms",
        millis(60_000),
        86_400_000,
        "Age at which a WAL object that was never committed is collected.",
    )
    wal_gc_grace_ms: int = _setting(
        "wal.gc.grace_ms",
        millis(0),
        600_000,
        "How long a WAL object that nothing refers to any more is kept for readers that still "
        "have it open.",
    )
    wal_gc_interval_ms: int = _setting(
        "wal.gc.interval_ms",
        millis(1),
        60_000,
        "How often WAL objects that nobody needs any more are looked for.",
    )
    wal_sweep_interval_ms: int = _setting(
        "wal.sweep.interval_ms",
        millis(0),
        86_400_000,
        "How often the object store is listed for WAL objects that no metadata names; 0 never "
        "does.",
    )
    storage_delay_put_ms: int = _setting(
        "storage.delay.put_ms",
        millis(0, 60_000),
        0,
        "Added to every PUT, to test and measure with the latency of a far object store.",
    )
    storage_delay_get_ms: int = _setting(
        "storage.delay.get_ms",
        millis(0, 60_000),
        0,
        "Added to every GET, likewise.",
    )

    # Reading
    cache_hot_max_bytes: int = _setting(
        "cache.hot.max_bytes",
        Size(0),
        128 * MIB,
        "Recently produced bytes kept in memory for readers at the end of the log.",
    )
    cache_cold_max_bytes: int = _setting(
        "cache.cold.max_bytes",
        Size(0),
        64 * MIB,
        "Bytes read back from the object store kept in memory, for readers that catch up.",
    )
    fetch_read_ahead_bytes: int = _setting(
        "fetch.read_ahead_bytes",
        Size(0, 1024 * MIB),
        8 * MIB,
        "How far beyond what was asked a read of older data goes.",
    )
    fetch_max_bytes: int = _setting(
        "fetch.max.bytes",
        Size(1024, INT32_MAX),
        57_671_680,
        "The most that one fetch answer carries, whatever the client asks for.",
    )
    max_incremental_fetch_session_cache_slots: int = _setting(
        "max.incremental.fetch.session.cache.slots",
        Integer(0),
        1000,
        "Incremental fetch sessions (KIP-227) that are kept.",
    )

    # What producers may send
    message_max_bytes: int = _setting(
        "message.max.bytes",
        Size(0, INT32_MAX),
        1_048_588,
        "The largest record batch, as compressed, that a topic takes unless it says otherwise.",
    )
    record_decompress_max_bytes: int = _setting(
        "record.decompress.max.bytes",
        Size(1024, 16 * 1024 * MIB),
        128 * MIB,
        "A compressed batch that unpacks to more than this is refused.",
    )
    log_message_timestamp_type: str = _setting(
        "log.message.timestamp.type",
        Choice(("CreateTime", "LogAppendTime")),
        "CreateTime",
        "Whether records keep the time that the producer gave them.",
    )
    log_message_timestamp_before_max_ms: int = _setting(
        "log.message.timestamp.before.max.ms",
        millis(0),
        INT64_MAX,
        "How far a record's time may lie behind the broker's.",
    )
    log_message_timestamp_after_max_ms: int = _setting(
        "log.message.timestamp.after.max.ms",
        millis(0),
        3_600_000,
        "How far a record's time may lie ahead of the broker's.",
    )
    producer_id_expiration_ms: int = _setting(
        "producer.id.expiration.ms",
        millis(1),
        86_400_000,
        "An idempotent producer that wrote nothing for this long is forgotten.",
    )
    producer_id_expiration_check_interval_ms: int = _setting(
        "producer.id.expiration.check.interval.ms",
        millis(1),
        600_000,
        "How often forgotten producers, and what is left of topics that were half created or "
        "half deleted, are removed.",
    )

    # Consumer groups
    group_initial_rebalance_delay_ms: int = _setting(
        "group.initial.rebalance.delay.ms",
        millis(0, INT32_MAX),
        3_000,
        "How long the first rebalance of an empty classic group waits for more members.",
    )
    group_min_session_timeout_ms: int = _setting(
        "group.min.session.timeout.ms",
        millis(1, INT32_MAX),
        6_000,
        "The shortest session timeout that a classic member may ask for.",
    )
    group_max_session_timeout_ms: int = _setting(
        "group.max.session.timeout.ms",
        millis(1, INT32_MAX),
        1_800_000,
        "The longest session timeout that a classic member may ask for.",
    )
    group_max_size: int = _setting(
        "group.max.size",
        Integer(1),
        INT32_MAX,
        "Members that a classic group may have.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = _setting(
        "group.coordinator.rebalance.protocols",
        Names(("classic", "consumer")),
        ("classic", "consumer"),
        "The group protocols that are served.",
    )
    group_consumer_session_timeout_ms: int = _setting(
        "group.consumer.session.timeout.ms",
        millis(1, INT32_MAX),
        45_000,
        "A member of a consumer group (KIP-848) that is silent for this long is removed.",
    )
    group_consumer_min_session_timeout_ms: int = _setting(
        "group.consumer.min.session.timeout.ms",
        millis(1, INT32_MAX),
        45_000,
        "The least that a group may set as its own `consumer.session.timeout.ms`.",
    )
    group_consumer_max_session_timeout_ms: int = _setting(
        "group.consumer.max.session.timeout.ms",
        millis(1, INT32_MAX),
        60_000,
        "The most that a group may set as its own `consumer.session.timeout.ms`.",
    )
    group_consumer_heartbeat_interval_ms: int = _setting(
        "group.consumer.heartbeat.interval.ms",
        millis(1, INT32_MAX),
        5_000,
        "How often members of consumer groups are told to send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = _setting(
        "group.consumer.min.heartbeat.interval.ms",
        millis(1, INT32_MAX),
        5_000,
        "The least that a group may set as its own `consumer.heartbeat.interval.ms`.",
    )
    group_consumer_max_heartbeat_interval_ms: int = _setting(
        "group.consumer.max.heartbeat.interval.ms",
        millis(1, INT32_MAX),
        15_000,
        "The most that a group may set as its own `consumer.heartbeat.interval.ms`.",
    )
    group_consumer_assignment_interval_ms: int = _setting(
        "group.consumer.assignment.interval.ms",
        millis(0, INT32_MAX),
        1_000,
        "The shortest time between two assignments of a consumer group.",
    )
    group_consumer_min_assignment_interval_ms: int = _setting(
        "group.consumer.min.assignment.interval.ms",
        millis(0, INT32_MAX),
        0,
        "The least that a group may set as its own `consumer.assignment.interval.ms`.",
    )
    group_consumer_max_assignment_interval_ms: int = _setting(
        "group.consumer.max.assignment.interval.ms",
        millis(0, INT32_MAX),
        15_000,
        "The most that a group may set as its own `consumer.assignment.interval.ms`.",
    )
    group_consumer_max_size: int = _setting(
        "group.consumer.max.size",
        Integer(1),
        INT32_MAX,
        "Members that a consumer group may have.",
    )
    group_consumer_assignors: tuple[str, ...] = _setting(
        "group.consumer.assignors",
        Names(("uniform", "range")),
        ("uniform", "range"),
        "The assignors that members of consumer groups may ask for; the first is the default.",
    )
    group_consumer_regex_refresh_interval_ms: int = _setting(
        "group.consumer.regex.refresh.interval.ms",
        millis(10_000, INT32_MAX),
        600_000,
        "How often the topics of a regular expression are looked for anew when no topic changed.",
    )
    offset_metadata_max_bytes: int = _setting(
        "offset.metadata.max.bytes",
        Size(0, INT32_MAX),
        4_096,
        "The longest text that a consumer may store with a committed offset.",
    )
    offsets_retention_minutes: int = _setting(
        "offsets.retention.minutes",
        Integer(1),
        10_080,
        "How long committed offsets are kept after their group has become empty, or their topic "
        "unsubscribed.",
    )
    offsets_retention_check_interval_ms: int = _setting(
        "offsets.retention.check.interval.ms",
        millis(1),
        600_000,
        "How often committed offsets are looked through for those that have expired.",
    )

    # Connections
    socket_request_max_bytes: int = _setting(
        "socket.request.max.bytes",
        Size(1024, INT32_MAX),
        104_857_600,
        "The largest request; a larger one closes its connection.",
    )
    queued_max_request_bytes: int = _setting(
        "queued.max.request.bytes",
        Size(1024),
        128 * MIB,
        "Requests in flight over all connections; beyond it sockets are read no further.",
    )
    connections_max_idle_ms: int = _setting(
        "connections.max.idle.ms",
        millis(1),
        600_000,
        "A connection is closed if for this long it has no requests, doesn't finish one that it "
        "has begun to send, or takes nothing of its answers.",
    )
    max_connections: int = _setting(
        "max.connections",
        Integer(0),
        INT32_MAX,
        "Connections that are open at a time; beyond it clients wait to be accepted.",
    )
    max_connections_per_ip: int = _setting(
        "max.connections.per.ip",
        Integer(0),
        INT32_MAX,
        "Connections of one address; more are closed.",
    )
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = _setting(
        "max.connections.per.ip.overrides",
        HostCounts(),
        (),
        "Other numbers for some addresses or hosts: `10.0.0.7:100,proxy.example:500`.",
    )
    max_connection_creation_rate: int = _setting(
        "max.connection.creation.rate",
        Integer(0),
        INT32_MAX,
        "Connections that are accepted in a second; beyond it clients wait to be accepted.",
    )
    socket_listen_backlog_size: int = _setting(
        "socket.listen.backlog.size",
        Integer(1),
        1024,
        "Connections that may wait to be accepted. Kafka's default is 50.",
    )

    # Quotas
    quota_window_num: int = _setting(
        "quota.window.num",
        Integer(1, 10_000),
        11,
        "Windows that the rates of client quotas are measured over.",
    )
    quota_window_size_seconds: int = _setting(
        "quota.window.size.seconds",
        Integer(1, 86_400),
        1,
        "How many seconds each of these windows has.",
    )

    # The process
    shutdown_timeout_ms: int = _setting(
        "shutdown.timeout_ms",
        millis(0, 3_600_000),
        30_000,
        "How long SIGTERM waits for what is in flight.",
    )
    log_level: str = _setting(
        "log.level",
        Choice(("debug", "info", "warning", "error")),
        "info",
        "How much is logged.",
    )
    log_format: str = _setting(
        "log.format",
        Choice(("auto", "human", "json")),
        "auto",
        "`auto` is `human` on a terminal and `json` elsewhere.",
    )

    @property
    def metadata_url(self) -> str:
        """`metadata`, with the embedded default filled in."""
        path = self.data_dir.absolute() / "metadata.db"
        return self.metadata or path.as_uri().replace("file", "sqlite", 1)

    @property
    def storage_url(self) -> str:
        """`storage`, with the embedded default filled in."""
        return self.storage or (self.data_dir.absolute() / "objects").as_uri()

    @property
    def uses_data_dir(self) -> bool:
        """Whether anything at all is kept in the data folder."""
        return not (self.metadata and self.storage)

    def advertised(self, bound_port: int) -> HostPort:
        """What clients are told, given the port that `listen` got."""
        if self.advertise is not None:
            return HostPort(self.advertise.host, self.advertise.port or bound_port)
        host = socket.gethostname() if self.listen.is_wildcard else self.listen.host
        return HostPort(host, bound_port)


def sqlite_path(url: str) -> Path:
    """The file that a `sqlite:///absolute/path.db` URL names."""
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.scheme != "sqlite" or parts.netloc or not path.is_absolute() or path == Path("/"):
        raise ConfigError(f'metadata must be sqlite:///absolute/path.db, not "{url}".')
    return path


class Setting(NamedTuple):
    """One row of the table."""

    key: str
    attribute: str
    kind: Kind
    default: object
    doc: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "DRAY_" + self.attribute.upper()

    def show(self, value: object) -> str:
        return self.kind.show(value)


SETTINGS: dict[str, Setting] = {
    field.metadata["key"]: Setting(
        field.metadata["key"],
        field.name,
        field.metadata["kind"],
        field.default,
        field.metadata["doc"],
    )
    for field in dataclasses.fields(Settings)
}


_ORDERED = (
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    ("group_consumer_min_session_timeout_ms", "group_consumer_session_timeout_ms"),
    ("group_consumer_session_timeout_ms", "group_consumer_max_session_timeout_ms"),
    ("group_consumer_min_heartbeat_interval_ms", "group_consumer_heartbeat_interval_ms"),
    ("group_consumer_heartbeat_interval_ms", "group_consumer_max_heartbeat_interval_ms"),
    ("group_consumer_min_assignment_interval_ms", "group_consumer_assignment_interval_ms"),
    ("group_consumer_assignment_interval_ms", "group_consumer_max_assignment_interval_ms"),
)
"""Pairs of settings of which the first must not be larger."""


def check(settings: Settings) -> None:
    """Refuse values that are fine alone but not together, and URLs that name nothing."""
    if settings.metadata.startswith("sqlite:"):
        sqlite_path(settings.metadata)
    if settings.zone:
        try:
            check_zone(settings.zone)
        except ValueError as error:
            raise ConfigError(f"zone: {error}.") from None
    if settings.wal_flush_min_linger_ms > settings.wal_flush_linger_ms:
        raise ConfigError(
            f"wal.flush.min_linger_ms ({settings.wal_flush_min_linger_ms}) must not be larger "
            f"than wal.flush.linger_ms ({settings.wal_flush_linger_ms})."
        )
    for lower, upper in _ORDERED:
        least, most = getattr(settings, lower), getattr(settings, upper)
        if least > most:
            raise ConfigError(
                f"{lower.replace('_', '.')} ({least}) must not be larger than "
                f"{upper.replace('_', '.')} ({most})."
            )
    if settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes ({settings.queued_max_request_bytes}) must be at least "
            f"socket.request.max.bytes ({settings.socket_request_max_bytes}), or the largest "
            "request could never be read."
        )
