"""Object paths (spec §5.1): the only place where they are built or taken apart.

    wal/v1/zone=<zone or none>/domain=<n>/date=YYYY/MM/DD/<wal id>.wo

The date is the UTC day of creation. Zone and date are there for people and for cheap listings;
readers take the path from metadata and draw no conclusions from it. `parse_wal_path` is for the
sweep that looks for objects which nothing names: it answers None for whatever is not a WAL path.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import NamedTuple
from uuid import UUID

WAL_PREFIX = "wal/v1"
NO_ZONE = "none"

# A zone becomes a path segment and a metrics label, so it is kept to plain characters.
_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_WAL_PATH = re.compile(
    r"wal/v1/zone=(?P<zone>[^/]+)/domain=(?P<domain>0|[1-9][0-9]{0,9})"
    r"/date=(?P<year>[0-9]{4})/(?P<month>[0-9]{2})/(?P<day>[0-9]{2})"
    r"/(?P<wal_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.wo\Z"
)


class WalPath(NamedTuple):
    zone: str | None
    meta_domain: int
    day: date
    wal_id: UUID


def check_zone(zone: str) -> str:
    """Return the zone if it can stand in a path, else raise ValueError with a sentence."""
    if not _ZONE.match(zone) or zone == NO_ZONE:
        raise ValueError(
            f"zone {zone!r} must be 1 to 128 letters, digits, '.', '_' or '-', "
            f"start with a letter or digit, and not be {NO_ZONE!r}"
        )
    return zone


def wal_path(zone: str | None, meta_domain: int, created_at_ms: int, wal_id: UUID) -> str:
    """The path of a WAL object; `zone` None or "" is a broker without a zone."""
    day = datetime.fromtimestamp(created_at_ms / 1000, UTC)
    name = check_zone(zone) if zone else NO_ZONE
    return f"{wal_prefix(name, meta_domain)}/date={day:%Y/%m/%d}/{wal_id}.wo"


def wal_prefix(zone: str, meta_domain: int) -> str:
    """The folder of a zone's objects of one domain, for listings."""
    return f"{WAL_PREFIX}/zone={zone}/domain={meta_domain}"


def parse_wal_path(path: str) -> WalPath | None:
    match = _WAL_PATH.match(path)
    if match is None:
        return None
    try:
        day = date(int(match["year"]), int(match["month"]), int(match["day"]))
    except ValueError:
        return None
    zone = None if match["zone"] == NO_ZONE else match["zone"]
    return WalPath(zone, int(match["domain"]), day, UUID(match["wal_id"]))
