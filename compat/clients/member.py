"""A client program as a member of a consumer group: what it is told and what it tells.

The job ``member`` (group, topic, protocol ``classic`` or ``consumer``, assignor) turns a client
program into a member for the rest of its life: it subscribes to the topic, reads from the earliest
offset where nothing is committed, commits after every batch and waits for that. Instead of answers
it writes events, one JSON object a line, each with the time (``at``, milliseconds of the day's
clock) at which it was written:

- ``{"owned": […]}``: all partitions that it owns now; written in the rebalance callbacks, so a
  partition that is given up is gone from the list before the group learns of it;
- ``{"read": partition, "start": offset, "end": offset}``: a batch without a gap, end exclusive;
- ``{"committed": {partition: offset}}``: after the broker said so. A commit that fails is not
  reported and not repeated: the next batch's covers it;
- ``{"left": true}``: when its standard input ended and it had left the group.
"""

import json
import sys
import threading
import time
from collections.abc import Iterable

SESSION_TIMEOUT_MS = 6000
HEARTBEAT_MS = 1000
POLL_MS = 200


class Member:
    """The events of one member, written to the standard output that the jobs' answers use."""

    def __init__(self) -> None:
        self._owned: set[int] = set()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._await_end, daemon=True).start()

    @property
    def stopping(self) -> bool:
        """Whether it is time to leave."""
        return self._stop.is_set()

    def gained(self, partitions: Iterable[int]) -> None:
        """More partitions are owned."""
        self._owned |= set(partitions)
        self._tell(owned=sorted(self._owned))

    def lost(self, partitions: Iterable[int]) -> None:
        """Fewer partitions are owned."""
        self._owned -= set(partitions)
        self._tell(owned=sorted(self._owned))

    def read(self, partition: int, offsets: list[int]) -> None:
        """A batch of records, in order."""
        start = offsets[0]
        for at, offset in enumerate(offsets):
            if offset != start + at:
                self._tell(read=partition, start=start, end=start + at)
                self.read(partition, offsets[at:])
                return
        self._tell(read=partition, start=start, end=start + len(offsets))

    def committed(self, offsets: dict[int, int]) -> None:
        """The broker confirmed a commit."""
        self._tell(committed=offsets)

    def left(self) -> None:
        """The group has been left."""
        self._tell(left=True)

    def _tell(self, **event: object) -> None:
        with self._lock:
            line = json.dumps({"at": time.time() * 1000, **event})
            print(line, file=sys.__stdout__, flush=True)

    def _await_end(self) -> None:
        sys.stdin.read()
        self._stop.set()
