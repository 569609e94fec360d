"""Client metrics subscriptions (KIP-714): kept and listed. Dray asks no client for metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping

from drayd.configs.keys import Key, table
from drayd.configs.values import BadValue, Type

CLIENT_METRICS_KEYS: Mapping[str, Key] = table(
    Key("interval.ms", Type.INT, "300000", "How often matching clients should send their metrics."),
    Key("match", Type.LIST, "", "Which clients the subscription is for; empty means all of them."),
    Key("metrics", Type.LIST, "", "Prefixes of the names of the metrics that are wanted."),
)
_INTERVAL_MS = range(100, 3_600_001)
_MATCHED = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class BadSubscription(Exception):
    """What Kafka answers with INVALID_REQUEST rather than INVALID_CONFIG."""


def check_subscription(values: Mapping[str, str]) -> None:
    """BadSubscription or BadValue says what can't be."""
    for name in values:
        if name not in CLIENT_METRICS_KEYS:
            raise BadSubscription(f"Unknown client metrics configuration: {name}")
    parsed = {name: CLIENT_METRICS_KEYS[name].parse(text) for name, text in values.items()}
    interval = parsed.get("interval.ms")
    if interval is not None and interval not in _INTERVAL_MS:
        raise BadSubscription(
            f"Invalid value {interval} for interval.ms, "
            "interval must be between 100 and 3600000 (1 hour)"
        )
    patterns = parsed.get("match")
    for pattern in patterns if isinstance(patterns, tuple) else ():
        _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    parts = pattern.rstrip("=").split("=")
    good = len(parts) == 2 and parts[0].strip() in _MATCHED
    if good:
        try:
            re.compile(parts[1].strip())
        except re.error:
            good = False
    if not good:
        raise BadValue(f"Illegal client matching pattern: {pattern}")
