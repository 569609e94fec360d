"""How long the event loop worked for one request, whatever else it did in between.

Only measured where somebody has a `request_percentage`: it costs a little at every step.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")


class Work:
    """The time of one request."""

    __slots__ = ("_since", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        now = 0.0 if self._since is None else perf_counter() - self._since
        return self._used + now

    async def timed(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it, and counts what it does between its waits."""
        result: T = await _Steps(coroutine, self)
        return result

    def begin(self) -> None:
        self._since = perf_counter()

    def end(self) -> None:
        self._used = self.seconds
        self._since = None


class _Steps:
    def __init__(self, coroutine: Coroutine[Any, Any, Any], work: Work) -> None:
        self._coroutine = coroutine
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        thrown: BaseException | None = None
        while True:
            self._work.begin()
            try:
                if thrown is None:
                    waits_for = self._coroutine.send(value)
                else:
                    waits_for = self._coroutine.throw(thrown)
            except StopIteration as done:
                return done.value
            finally:
                self._work.end()
            value = thrown = None
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation too is the coroutine's
                thrown = error
