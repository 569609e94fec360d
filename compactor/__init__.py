"""What happens to the log after it was written. For now: collection (`docs/adr/0003`).

- `collect`: the rounds, and when each step is due
- `garbage`: objects that nothing refers to any more
- `orphans`: objects that were written and never committed, found by their staging markers
- `sweep`: objects that nothing names at all, found by listing the store
- `expiry`: the state of producers that were silent for too long
- `abandoned`: streams of topics that never came to be, and deletions that nobody finished
- `naming`: what names a WAL object, in the one order in which it may be asked
- `deletes`: deleting many objects, a few at a time

Every step may be repeated, interrupted anywhere, and run by several processes at once.
"""

from compactor.collect import Backlog, Collector, Policy

__all__ = ["Backlog", "Collector", "Policy"]
