"""Every key of the metadata store, and the scope that it lives in.

Nothing else in Dray builds a key. Numbers are zero-padded to twenty digits, so that lexical
order is numeric order and `ceiling` finds the entry that covers an offset.

A scope is the unit of a transaction: a MetaDomain, the topic registry, the cluster, a consumer
group, the directory of groups, or the quotas. Each key belongs to exactly one; `scope_of` derives
it from the key, so the two can't disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote
from uuid import UUID

ROOT = "/dray/v1"
CLUSTER_SCOPE = "cluster"
TOPICS_SCOPE = "topics"
GROUP_NAMES_SCOPE = "group-names"
QUOTAS_SCOPE = "quotas"

CLUSTER_ID = f"{ROOT}/cluster/id"
BROKERS = f"{ROOT}/cluster/brokers/"
TOPIC_NAMES = f"{ROOT}/topics/names/"
TOPIC_IDS = f"{ROOT}/topics/ids/"
GROUP_NAMES = f"{ROOT}/group-names/"
GROUPS = f"{ROOT}/groups/"
QUOTAS = f"{ROOT}/quotas/"

# Greater than every character that a key's last part may hold. Both ends of a range have the
# same number of slashes, because some stores sort by depth first.
_LAST = "~"


def domain_scope(domain: int) -> str:
    return f"domain/{domain}"


def scope_of(key: str) -> str:
    """The one scope of a key; ValueError for a key that no function here builds."""
    parts = key.split("/")
    match parts[3:4]:
        case ["cluster"]:
            return CLUSTER_SCOPE
        case ["topics"]:
            return TOPICS_SCOPE
        case ["group-names"]:
            return GROUP_NAMES_SCOPE
        case ["quotas"]:
            return QUOTAS_SCOPE
        case ["groups"] if len(parts) > 5:
            return f"group/{parts[4]}"
        case ["domains"] if len(parts) > 4 and parts[4].isdigit():
            return domain_scope(int(parts[4]))
        case _:
            raise ValueError(f"the key {key!r} has no scope")


def end_of(prefix: str) -> str:
    """The exclusive end of the range of all keys that start with `prefix` (ending in '/')."""
    if not prefix.endswith("/"):
        raise ValueError(f"the prefix {prefix!r} doesn't end with '/'")
    return prefix + _LAST


def counter(name: str) -> str:
    return f"{ROOT}/cluster/counters/{name}"


def broker(broker_id: int) -> str:
    return f"{BROKERS}{broker_id:020d}"


def topic_name(name: str) -> str:
    return f"{TOPIC_NAMES}{name}"


def topic_id(topic: UUID) -> str:
    return f"{TOPIC_IDS}{topic.hex}"


def domain(domain: int) -> str:
    return f"{ROOT}/domains/{domain:05d}/"


def stream(domain_number: int, stream_id: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/streams/{stream_id:020d}/"


def stream_head(domain_number: int, stream_id: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/streams/{stream_id:020d}/head"


def index(domain_number: int, stream_id: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/streams/{stream_id:020d}/index/"


def index_entry(domain_number: int, stream_id: int, end_offset: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/streams/{stream_id:020d}/index/{end_offset:020d}"


def producers(domain_number: int, stream_id: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/streams/{stream_id:020d}/producers/"


def producer(domain_number: int, stream_id: int, producer_id: int) -> str:
    return (
        f"{ROOT}/domains/{domain_number:05d}/streams/{stream_id:020d}/producers/{producer_id:020d}"
    )


def producer_id_of(key: str) -> int:
    return int(key.rsplit("/", 1)[1])


def staging(domain_number: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/wal/staging/"


def marker(domain_number: int, range_id: str) -> str:
    return f"{staging(domain_number)}{range_id}"


def wal_objects(domain_number: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/wal/objects/"


def wal_object(domain_number: int, wal_id: UUID) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/wal/objects/{wal_id.hex}"


def garbage(domain_number: int) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/wal/garbage/"


def garbage_object(domain_number: int, wal_id: UUID) -> str:
    return f"{ROOT}/domains/{domain_number:05d}/wal/garbage/{wal_id.hex}"


def wal_id_of(key: str) -> UUID:
    return UUID(hex=key.rsplit("/", 1)[1])


# -- configurations -------------------------------------------------------------------------------

CONFIGS = f"{ROOT}/cluster/configs/"


def configs(kind: str) -> str:
    return f"{CONFIGS}{kind}/"


def config(kind: str, name: str) -> str:
    """The configuration of a resource: a kind of resource, and its name, which may be any text."""
    return f"{CONFIGS}{kind}/{_escaped(name)}"


def config_of(key: str) -> tuple[str, str]:
    """The kind and the name of the resource."""
    kind, escaped = key.removeprefix(CONFIGS).split("/")
    return kind, "" if escaped == _EMPTY_GROUP else unquote(escaped)


# -- consumer groups -----------------------------------------------------------------------------

_EMPTY_GROUP = "%"
"""Stands for the group id "", which Kafka allows; no other id is escaped to this."""


def _escaped(group_id: str) -> str:
    """A group id may be any text; a key's part has no slash and sorts before the end of a range."""
    return quote(group_id, safe="").replace("~", "%7E") or _EMPTY_GROUP


def group_scope(group_id: str) -> str:
    return f"group/{_escaped(group_id)}"


def group_name(group_id: str) -> str:
    return f"{GROUP_NAMES}{_escaped(group_id)}"


def group_id_of(name_key: str) -> str:
    """The group that an entry of the directory is of."""
    escaped = name_key.removeprefix(GROUP_NAMES)
    return "" if escaped == _EMPTY_GROUP else unquote(escaped)


def group_record(group_id: str) -> str:
    return f"{GROUPS}{_escaped(group_id)}/record"


def group_lease(group_id: str) -> str:
    return f"{GROUPS}{_escaped(group_id)}/lease"


def group_offsets(group_id: str) -> str:
    return f"{GROUPS}{_escaped(group_id)}/offsets/"


def group_offset(group_id: str, topic: UUID, partition: int) -> str:
    return f"{GROUPS}{_escaped(group_id)}/offsets/{topic.hex}-{partition:010d}"


def partition_of(offset_key: str) -> tuple[UUID, int]:
    """The topic and the partition that a committed offset is of."""
    topic, partition = offset_key.rsplit("/", 1)[1].split("-")
    return UUID(hex=topic), int(partition)


# -- quotas --------------------------------------------------------------------------------------


def quota(entity: Mapping[str, str | None]) -> str:
    """An entity is a name (None: the default) for each of some types, in any order."""
    parts = (
        kind if name is None else f"{kind}={quote(name, safe='')}"
        for kind, name in sorted(entity.items())
    )
    return f"{QUOTAS}{','.join(parts)}"
