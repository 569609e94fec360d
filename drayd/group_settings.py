"""The settings that a group's state machine goes by: the broker's, and what was set for the group
itself (IncrementalAlterConfigs on a GROUP resource), within the broker's bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from drayd.config import Settings
from drayd.groups.machine import GroupSettings


def of_broker(settings: Settings) -> GroupSettings:
    protocols = settings.group_coordinator_rebalance_protocols
    return GroupSettings(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        max_size=settings.group_max_size,
        classic_protocol_enabled="classic" in protocols,
        consumer_protocol_enabled="consumer" in protocols,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_assignment_interval_ms=settings.group_consumer_assignment_interval_ms,
        consumer_max_size=settings.group_consumer_max_size,
        consumer_assignors=settings.group_consumer_assignors,
        consumer_regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
    )


def of_group(
    settings: Settings, group_config: Callable[[str], Mapping[str, str]]
) -> Callable[[str], GroupSettings]:
    """From a group's id to its settings."""
    base = of_broker(settings)
    session = (
        settings.group_consumer_min_session_timeout_ms,
        settings.group_consumer_max_session_timeout_ms,
    )
    heartbeat = (
        settings.group_consumer_min_heartbeat_interval_ms,
        settings.group_consumer_max_heartbeat_interval_ms,
    )
    assignment = (
        settings.group_consumer_min_assignment_interval_ms,
        settings.group_consumer_max_assignment_interval_ms,
    )

    def settings_of(group_id: str) -> GroupSettings:
        own = group_config(group_id)
        if not own:
            return base

        def value(name: str, default: int, bounds: tuple[int, int]) -> int:
            # What was set stays within the bounds of now.
            least, most = bounds
            return min(max(int(own[name]), least), most) if name in own else default

        return replace(
            base,
            consumer_session_timeout_ms=value(
                "consumer.session.timeout.ms", base.consumer_session_timeout_ms, session
            ),
            consumer_heartbeat_interval_ms=value(
                "consumer.heartbeat.interval.ms", base.consumer_heartbeat_interval_ms, heartbeat
            ),
            consumer_assignment_interval_ms=value(
                "consumer.assignment.interval.ms", base.consumer_assignment_interval_ms, assignment
            ),
        )

    return settings_of
