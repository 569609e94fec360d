"""Every key of the metadata store, and the scope that it lives in.

Nothing else in Dray builds a key. Numbers are zero-padded to twenty digits, so that lexical
order is numeric order and `ceiling` finds the entry that covers an offset.

A scope is the unit of a transaction: a MetaDomain, the topic registry, or the cluster. Each
key belongs to exactly one; `scope_of` derives it from the key, so the two can't disagree.
"""

from __future__ import annotations

from uuid import UUID

ROOT = "/dray/v1"
CLUSTER_SCOPE = "cluster"
TOPICS_SCOPE = "topics"

CLUSTER_ID = f"{ROOT}/cluster/id"
BROKERS = f"{ROOT}/cluster/brokers/"
TOPIC_NAMES = f"{ROOT}/topics/names/"
TOPIC_IDS = f"{ROOT}/topics/ids/"

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
