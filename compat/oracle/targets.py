"""The two servers, with settings that agree, and what each says that it speaks."""

import time
from pathlib import Path

from compat.oracle import schema
from compat.oracle.connection import Connection
from compat.oracle.scenario import Versions
from compat.servers import Dray, Kafka
from compat.wire import Address

COORDINATORS_WITHIN_S = 30.0
# So that sessions can end while a test waits.
SESSIONS = "group.min.session.timeout.ms=100"
DRAY_SETTINGS = ("broker.id=1", "group.initial.rebalance.delay.ms=0", SESSIONS)
KAFKA_SETTINGS = (
    SESSIONS,
    # Records of scenarios have fixed, old times: nothing may be removed while they are played.
    "log.initial.task.delay.ms=86400000",
    "log.retention.check.interval.ms=86400000",
)


def kafka(folder: Path) -> Kafka:
    """Apache Kafka for the oracle."""
    return Kafka(folder / "kafka", synced=False, settings=KAFKA_SETTINGS)


def dray(folder: Path) -> Dray:
    """Dray for the oracle."""
    return Dray(folder / "dray", DRAY_SETTINGS)


def settle(address: Address) -> None:
    """Wait until Kafka's coordinators serve: they make their topics when they are first asked."""
    connection = Connection(address)
    ready = {"error_code": "none"}
    deadline = time.monotonic() + COORDINATORS_WITHIN_S
    for name, version, body, path in (
        ("FindCoordinator", 6, {"key_type": 0, "coordinator_keys": ["settled"]}, "coordinators"),
        ("FindCoordinator", 6, {"key_type": 1, "coordinator_keys": ["settled"]}, "coordinators"),
        ("OffsetFetch", 9, {"groups": [{"group_id": "settled", "topics": None}]}, "groups"),
    ):
        api = schema.apis()[name]
        while time.monotonic() < deadline:
            answer = connection.receive(connection.send(api, version, body, "oracle"))
            if ready.items() <= answer[path][0].items():
                break
            time.sleep(0.1)
    connection.close()


def versions(address: Address) -> Versions:
    """The versions that the server at this address and kio both know."""
    connection = Connection(address)
    api = schema.apis()["ApiVersions"]
    body = {"client_software_name": "oracle", "client_software_version": "1"}
    answer = connection.receive(connection.send(api, 3, body, "oracle"))
    connection.close()
    offered = {each["api_key"]: each for each in answer["api_keys"]}
    found = {}
    for name, each in schema.apis().items():
        if each.key in offered:
            low = max(offered[each.key]["min_version"], each.versions[0])
            high = min(offered[each.key]["max_version"], each.versions[-1])
            if low <= high:
                found[name] = (low, high)
    return found
