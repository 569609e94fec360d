"""What a classic group is asked, and what it answers: facts without any wire format.

Exactly one answer to each request comes out of `classic.decide`: in the same decision or, for a
Join or a Sync that waits for other members, in a later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from drayd.groups.machine import Kind, Request
from protocol.errors import ErrorCode

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""The assignment strategies that a member offers, in its order of preference, with the bytes that
its group's leader is to see for each."""


# -- requests ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClassicRequest(Request):
    @property
    def kind(self) -> Kind:
        return Kind.CLASSIC


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(ClassicRequest):
    member_id: str
    """Empty: not known yet."""
    new_member_id: str
    """The id to give if `member_id` is empty."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    id_required: bool = True
    """A dynamic member has to come back with its id (KIP-394, JoinGroup 4 and newer)."""
    can_skip_assignment: bool = True
    """The client knows of `skip_assignment` (KIP-814, JoinGroup 9 and newer)."""
    reason: str = ""
    """Why the client says it joins (KIP-800)."""

    @property
    def creates(self) -> bool:
        return not self.member_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(ClassicRequest):
    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    """None: not said (before SyncGroup 5)."""
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """From the leader: each member's part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(ClassicRequest):
    member_id: str
    instance_id: str | None = None
    generation: int


class Leaver(NamedTuple):
    member_id: str
    """Empty: the member is named by its instance id alone, by an administrator."""
    instance_id: str | None = None
    reason: str = ""
    """Why it goes (KIP-800)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(ClassicRequest):
    leavers: tuple[Leaver, ...]


# -- answers -------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """For the leader: everyone."""


class Synced(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Beaten(NamedTuple):
    error: ErrorCode


class LeaverResult(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class Left(NamedTuple):
    results: tuple[LeaverResult, ...]


Answer: TypeAlias = Joined | Synced | Beaten | Left
