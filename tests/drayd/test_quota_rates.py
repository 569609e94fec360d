"""Rates as Apache Kafka measures them, and what a client that obeys gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drayd.quota_rates import Rate, TokenBucket, Windows

WINDOWS = Windows()


def test_nothing_happened() -> None:
    assert Rate(WINDOWS).per_second(5000) == 0
    assert Rate(WINDOWS).over_ms(1.0, 5000) == 0


def test_a_young_rate_is_taken_over_all_windows_but_one() -> None:
    rate = Rate(WINDOWS)
    rate.record(1000, 0)
    assert rate.per_second(0) == 100
    assert rate.per_second(500) == pytest.approx(1000 / 10.5)
    # The time that it takes to come back to 50 a second, over 10 s.
    assert rate.over_ms(50.0, 0) == 10_000
    assert rate.over_ms(100.0, 0) == 0


def test_old_samples_are_forgotten() -> None:
    rate = Rate(WINDOWS)
    rate.record(1000, 0)
    assert rate.per_second(10_999) == pytest.approx(1000 / 10.999)
    assert rate.per_second(11_000) == 0


def test_what_was_taken_back_did_not_happen() -> None:
    rate = Rate(WINDOWS)
    rate.record(1000, 0)
    rate.record(-1000, 10)
    assert rate.per_second(10) == 0


@pytest.mark.parametrize("size", [100, 5_000, 60_000])
@pytest.mark.parametrize("limit", [1_000.0, 50_000.0])
def test_a_client_that_waits_as_told_settles_at_its_limit(size: int, limit: float) -> None:
    """It sends as fast as it may: each request, then the wait that its answer asks for."""
    rate = Rate(WINDOWS)
    now_ms, sent, requests = 0, 0, 0
    while requests < 3000 and now_ms < 600_000:
        rate.record(size, now_ms)
        sent += size
        requests += 1
        now_ms += max(rate.over_ms(limit, now_ms), 1)
    # A burst of all windows at the beginning comes on top; and a wait that is longer than all
    # windows forgets a little of what it is for, as Kafka's does.
    allowed = 1.25 * limit * (now_ms / 1000 + WINDOWS.samples) + size
    assert 0.8 * limit * now_ms / 1000 <= sent <= allowed


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 10_000)), min_size=1, max_size=60),
    st.integers(1, 10_000),
)
def test_the_rate_is_never_more_than_what_happened(
    events: list[tuple[int, int]], limit: int
) -> None:
    rate = Rate(WINDOWS)
    now_ms = 0
    for pause_ms, size in events:
        now_ms += pause_ms
        rate.record(size, now_ms)
    per_second = rate.per_second(now_ms)
    assert 0 < per_second <= sum(size for _, size in events) / (WINDOWS.samples - 1)
    assert (rate.over_ms(float(limit), now_ms) > 0) == (per_second > limit * 1.00005) or (
        limit < per_second < limit * 1.0001
    )
    assert rate.per_second(now_ms + WINDOWS.samples * WINDOWS.window_ms) == 0


def test_a_bucket_begins_full_and_can_be_overdrawn_once() -> None:
    bucket = TokenBucket(Windows(10, 1000))
    assert bucket.over_ms(2.0, 1_000) == 0
    bucket.take(25, 2.0, 1_000)
    assert bucket.over_ms(2.0, 1_000) == 2_500
    assert bucket.over_ms(2.0, 3_400) == 100
    assert bucket.over_ms(2.0, 3_500) == 0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(Windows(10, 1000))
    bucket.take(1, 2.0, 0)
    bucket.take(20, 2.0, 10**9)
    assert bucket.over_ms(2.0, 10**9) == 0
    bucket.take(1, 2.0, 10**9)
    assert bucket.over_ms(2.0, 10**9) == 500
