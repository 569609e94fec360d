"""Recent rows never answer with something older than what was announced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metadata.recent_rows import RecentRows
from metadata.store import Versioned

KEYS = ["a", "b", "c"]


def test_a_read_that_ran_beside_a_forgotten_write_is_not_kept() -> None:
    recent = RecentRows(max_bytes=8000)
    begun_as_of = 1
    recent.written("s", "a", b"new", 2)
    for version in range(3, 60):  # pushes the write of "a" out
        recent.written("s", f"k{version}", b"x" * 300, version)
    assert recent.get("s", "a") is None
    recent.read("s", "a", Versioned(b"old", 1), begun_as_of)
    assert recent.get("s", "a") is None
    recent.read("s", "a", Versioned(b"new", 2), 59)
    known = recent.get("s", "a")
    assert known is not None
    assert known.row == Versioned(b"new", 2)


def test_what_is_cleared_is_not_brought_back_by_an_older_read() -> None:
    recent = RecentRows(max_bytes=8000)
    recent.clear(as_of=5)
    recent.read("s", "a", Versioned(b"old", 4), 4)
    assert recent.get("s", "a") is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.sampled_from(KEYS), st.integers(0, 900)),
            st.tuples(st.just("delete"), st.sampled_from(KEYS), st.just(0)),
            st.tuples(st.just("begin read"), st.sampled_from(KEYS), st.just(0)),
            st.tuples(st.just("end read"), st.sampled_from(KEYS), st.just(0)),
            st.tuples(st.just("look"), st.sampled_from(KEYS), st.just(0)),
        ),
        max_size=60,
    )
)
def test_an_answer_is_always_the_newest_announced(steps: list[tuple[str, str, int]]) -> None:
    recent = RecentRows(max_bytes=7000)  # holds few rows, so that much is forgotten
    truth: dict[str, Versioned] = {}
    reads: dict[str, tuple[Versioned | None, int]] = {}
    version = 0
    for action, key, size in steps:
        if action == "write":
            version += 1
            truth[key] = Versioned(bytes(size), version)
            recent.written("s", key, bytes(size), version)
        elif action == "delete":
            version += 1
            truth.pop(key, None)
            recent.written("s", key, None, version)
        elif action == "begin read":
            reads[key] = (truth.get(key), version)
        elif action == "end read" and key in reads:
            row, as_of = reads.pop(key)
            recent.read("s", key, row, as_of)
        known = recent.get("s", key)
        assert known is None or known.row == truth.get(key)
