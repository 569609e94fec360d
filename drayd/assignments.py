"""Partitions that a request assigns to brokers by hand. Every broker serves every partition, so
an assignment is checked as Kafka does and then has no effect."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from protocol.errors import ErrorCode, KafkaError


def check_replicas(replicas: Sequence[int], brokers: Collection[int]) -> None:
    """KafkaError(INVALID_REPLICA_ASSIGNMENT) unless `replicas` are brokers, each once."""
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker}, "
                "but no such broker is registered."
            )
        if broker == previous:
            raise _invalid(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        previous = broker


def check_partitions(partitions: Sequence[int]) -> None:
    """The partitions of a new topic: 0, 1, 2, … in any order."""
    seen: set[int] = set()
    for partition in partitions:
        if partition in seen:
            raise _invalid(f"Found multiple manual partition assignments for partition {partition}")
        seen.add(partition)
    if seen != set(range(len(partitions))):
        raise _invalid("partitions should be a consecutive 0-based integer sequence")


def check_added(added: int, assignments: int) -> None:
    """As many assignments as partitions are added."""
    if added != assignments:
        raise _invalid(
            f"Attempted to add {added} additional partition(s), "
            f"but only {assignments} assignment(s) were specified."
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)
