"""A scan as a row of short reads, so that no store holds a snapshot while its caller works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from metadata.store import KeyValue

PAGE_ROWS = 256


class Page(NamedTuple):
    rows: list[KeyValue]
    more: bool
    """False once the range holds nothing beyond these rows."""


ReadPage = Callable[[str, str, int], Awaitable[Page]]
"""(start, end, max_rows): the first rows of [start, end) in the scan's direction."""


async def scan_pages(
    read_page: ReadPage, start: str, end: str, limit: int | None, reverse: bool
) -> AsyncIterator[KeyValue]:
    if limit is not None and limit < 0:
        raise ValueError(f"a scan's limit can't be negative, got {limit}")
    left = limit
    while left is None or left > 0:
        page = await read_page(start, end, PAGE_ROWS if left is None else min(left, PAGE_ROWS))
        for row in page.rows:
            yield row
        if not page.more:
            return
        if left is not None:
            left -= len(page.rows)
        if reverse:
            end = page.rows[-1].key
        else:
            start = page.rows[-1].key + "\0"  # the smallest text after that key
