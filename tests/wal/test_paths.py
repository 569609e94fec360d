"""WAL object paths: what is built is what the specification says, and can be taken apart."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal.objectstore import check_path
from wal.paths import WAL_PREFIX, WalPath, check_zone, parse_wal_path, wal_path, wal_prefix

WAL_ID = UUID("0193fffe-dcba-7000-8123-456789abcdef")
NEW_YEARS_EVE_MS = 1_735_689_599_999  # 2024-12-31T23:59:59.999Z

zones = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda zone: zone != "none"
)


def test_the_path_of_the_specification() -> None:
    assert (
        wal_path("eu-west-1a", 12, NEW_YEARS_EVE_MS, WAL_ID)
        == f"wal/v1/zone=eu-west-1a/domain=12/date=2024/12/31/{WAL_ID}.wo"
    )


@pytest.mark.parametrize("zone", [None, ""])
def test_a_broker_without_a_zone(zone: str | None) -> None:
    path = wal_path(zone, 0, NEW_YEARS_EVE_MS + 1, WAL_ID)
    assert path == f"wal/v1/zone=none/domain=0/date=2025/01/01/{WAL_ID}.wo"
    parsed = parse_wal_path(path)
    assert parsed is not None
    assert parsed.zone is None


@given(
    st.none() | zones, st.integers(0, 2**32 - 1), st.integers(0, 250_000_000_000_000), st.uuids()
)
def test_a_path_is_taken_apart_again(
    zone: str | None, domain: int, created_at_ms: int, wal_id: UUID
) -> None:
    path = wal_path(zone, domain, created_at_ms, wal_id)
    day = datetime.fromtimestamp(created_at_ms / 1000, UTC).date()
    assert parse_wal_path(path) == WalPath(zone, domain, day, wal_id)
    assert check_path(path) == path
    assert path.startswith(f"{WAL_PREFIX}/")
    assert path.startswith(f"{wal_prefix(zone or 'none', domain)}/")


@pytest.mark.parametrize("zone", ["none", "a/b", "..", "", "-a", "a b", "ü", "a" * 129, "a\n"])
def test_a_zone_that_cannot_stand_in_a_path(zone: str) -> None:
    with pytest.raises(ValueError, match="zone"):
        check_zone(zone)
    if zone:
        with pytest.raises(ValueError, match="zone"):
            wal_path(zone, 0, 0, WAL_ID)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "wal/v1",
        f"wal/v2/zone=a/domain=0/date=2025/01/01/{WAL_ID}.wo",
        f"wal/v1/zone=a/domain=/date=2025/01/01/{WAL_ID}.wo",
        f"wal/v1/zone=a/domain=01/date=2025/01/01/{WAL_ID}.wo",
        f"wal/v1/zone=a/domain=0/date=2025/02/30/{WAL_ID}.wo",
        f"wal/v1/zone=a/domain=0/date=2025/1/1/{WAL_ID}.wo",
        f"wal/v1/zone=a/domain=0/date=2025/01/01/{WAL_ID}",
        f"wal/v1/zone=a/domain=0/date=2025/01/01/{WAL_ID}.wo\n",
        f"wal/v1/zone=a/domain=0/date=2025/01/01/{str(WAL_ID).upper()}.wo",
        f"x/wal/v1/zone=a/domain=0/date=2025/01/01/{WAL_ID}.wo",
        "wal/v1/zone=a/domain=0/date=2025/01/01/somebody-elses.wo",
    ],
)
def test_what_is_no_wal_path(path: str) -> None:
    assert parse_wal_path(path) is None


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    assert parse_wal_path(text) is None or text.startswith(WAL_PREFIX)


def test_the_day_is_a_date() -> None:
    parsed = parse_wal_path(wal_path("a", 1, NEW_YEARS_EVE_MS, WAL_ID))
    assert parsed is not None
    assert parsed.day == date(2024, 12, 31)
