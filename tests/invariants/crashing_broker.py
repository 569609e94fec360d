"""A broker that kills itself (SIGKILL) at a chosen step of its write path.

Usage: python -m tests.invariants.crashing_broker STEP TIMES start …, where the rest are the
arguments of `drayd`, and it dies the TIMESth time that it gets to STEP:

    marker    a staging marker is durable, nothing was written under it
    writing   the bytes of an object are in a file that has no name yet
    named     the object has its name, which was not synced yet
    put       the object is stored
    commit    the metadata commit is durable, nobody has heard of it
    deliver   cache and waiting fetches know of the records, the producer doesn't
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from drayd import app, cli
from drayd.config import Settings
from drayd.metrics import Metrics
from drayd.produce import DomainSink
from metadata.append import Appended
from metadata.faults import FaultyStore
from metadata.store import Check, CommitResult, Delete, MetadataStore, Put
from wal import local_write
from wal.faulty import Faulty
from wal.objectstore import Buffer, ObjectStore
from wal.writer import Written

STEPS = ("marker", "writing", "named", "put", "commit", "deliver")


class Fuse:
    def __init__(self, step: str, times: int) -> None:
        assert step in STEPS
        self._step = step
        self._left = times

    def burn(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Metadata(FaultyStore):
    def __init__(self, inner: MetadataStore, fuse: Fuse) -> None:
        super().__init__(inner)
        self._fuse = fuse

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        result = await super().commit(scope, checks, writes)
        puts = [write.key for write in writes if isinstance(write, Put)]
        if any("/wal/staging/" in key for key in puts):
            self._fuse.burn("marker")
        if any("/index/" in key for key in puts):
            self._fuse.burn("commit")
        return result


class Objects(Faulty):
    def __init__(self, store: ObjectStore, fuse: Fuse) -> None:
        super().__init__(store)
        self._fuse = fuse

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await super().put(path, parts)
        self._fuse.burn("put")


def sink(fuse: Fuse) -> type[DomainSink]:
    class Sink(DomainSink):
        def deliver(self, written: Written, result: Appended) -> None:
            super().deliver(written, result)
            fuse.burn("deliver")

    return Sink


def after(function: Callable[..., None], burn: Callable[[], None]) -> Callable[..., None]:
    def wrapped(*args: Any, **named: Any) -> None:
        function(*args, **named)
        burn()

    return wrapped


def replace(module: ModuleType, name: str, value: object) -> None:
    assert hasattr(module, name)
    setattr(module, name, value)


def main() -> int:
    fuse = Fuse(sys.argv[1], int(sys.argv[2]))

    async def metadata(settings: Settings, metrics: Metrics) -> MetadataStore:
        return Metadata(await app.open_metadata(settings, metrics), fuse)

    def objects(settings: Settings, metrics: Metrics) -> ObjectStore:
        return Objects(app.open_objects(settings, metrics), fuse)

    # What `app` puts together is looked up in its module, so this is the one place to step in.
    replace(app, "serve", functools.partial(app.serve, metadata=metadata, objects=objects))
    replace(app, "DomainSink", sink(fuse))
    local_write.write_durably = after(local_write.write_durably, lambda: fuse.burn("writing"))
    # Opening the store links a file as well, to see whether it can: that is no object.
    link = os.link

    def linking(source: Any, target: Any, **named: Any) -> None:
        link(source, target, **named)
        if str(target).endswith(".wo"):
            fuse.burn("named")

    replace(os, "link", linking)
    return cli.main(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
