"""What a consumer group (KIP-848) is asked and what it answers: facts without any wire format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from drayd.groups.assignors import Partitions
from drayd.groups.machine import Kind, Request
from protocol.errors import ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member goes away for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(Request):
    """ConsumerGroupHeartbeat: join, leave, stay and acknowledge, all in one. None: unchanged since
    the last one."""

    api_version: int = 1
    group_id: str
    member_id: str
    new_member_id: str = ""
    """The id to give if `member_id` is empty (version 0)."""
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def kind(self) -> Kind:
        return Kind.CONSUMER

    @property
    def joins(self) -> bool:
        return self.member_epoch == JOIN_EPOCH

    @property
    def leaves(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def creates(self) -> bool:
        return self.joins

    @property
    def full(self) -> bool:
        """A member says everything when it isn't sure what the coordinator knows; then it is
        told everything too."""
        return self.joins or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.regex is not None)
            and self.owned is not None
        )


class BeatAnswer(NamedTuple):
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """None: as it was."""


class Refused(Exception):
    """A heartbeat that is answered with an error and changes nothing."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def answer(self) -> BeatAnswer:
        return BeatAnswer(self.code, self.message or None)


def group_not_found(beat: Beat) -> BeatAnswer:
    """To a member of a group that doesn't exist."""
    what = "Group" if beat.leaves else "Consumer group"
    return BeatAnswer(ErrorCode.group_id_not_found, f"{what} {beat.group_id} not found.")


def not_a_consumer_group(beat: Beat) -> BeatAnswer:
    """To a request that doesn't join, from a classic group."""
    return BeatAnswer(
        ErrorCode.group_id_not_found, f"Group {beat.group_id} is not a consumer group."
    )


def no_online_upgrade(beat: Beat) -> BeatAnswer:
    """To a join, from a classic group that has members."""
    return BeatAnswer(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {beat.group_id} to consumer group "
        "because online upgrade is disabled.",
    )
