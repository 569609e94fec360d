"""What a client program is asked and what it answers, so that all of them are driven alike.

A job is one JSON object on standard input, the answer one JSON object on standard output:
``{"do": …, "bootstrap": "host:port", "cases": […]}`` gives ``{"results": […]}`` with one result
for each case, either ``{"ok": …}`` or ``{"error": "…"}``. Keys, values and header values are in
base64, or null.

=========== =============================================== =====================================
do          a case                                          its "ok"
=========== =============================================== =====================================
describe    {}                                              version, compressions, and what it can
create      topic, partitions                               null
produce     topic, compression, acks, idempotent, records   the records' offsets (null: unknown)
consume     topic, ends (records in each partition)         the records, with offsets
offsets     topic, partition, timestamp                     earliest, latest, at
=========== =============================================== =====================================

What a client can is, unless it says otherwise: ``creates`` topics, ``timestamps`` are its to set,
``null_headers`` (headers without a value); ``plain`` is a client for lines of text alone.

A consumer is assigned its partitions and starts at offset 0; it never joins a group.
"""

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

CASE_TIMEOUT_S = 20.0

Case = dict[str, Any]
Doer = Callable[[str, Case], Any]


class Record(TypedDict):
    """A record as it travels in a job; only a consumed one has an offset."""

    partition: int
    offset: int
    key: str | None
    value: str | None
    headers: list[list[str | None]]
    timestamp: int


class TimedOut(Exception):
    """The broker did not give what was expected in time."""


def serve(doers: Mapping[str, Doer]) -> None:
    """Read the job, do its cases one after the other, write the answer."""
    job = json.load(sys.stdin)
    do = doers[job["do"]]
    results: list[dict[str, Any]] = []
    for case in job["cases"]:
        try:
            results.append({"ok": do(job["bootstrap"], case)})
        except Exception as error:  # noqa: BLE001  a case that fails is a result like any other
            results.append({"error": f"{type(error).__name__}: {error}"})
    json.dump({"results": results}, sys.stdout)


def pack(data: bytes | None) -> str | None:
    """Bytes as they travel in JSON."""
    return None if data is None else b64encode(data).decode()


def unpack(text: str | None) -> bytes | None:
    """The bytes again."""
    return None if text is None else b64decode(text)
