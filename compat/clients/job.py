"""What a client program is asked and what it answers, so that all of them are driven alike.

A client program reads jobs from standard input, one JSON object a line,
``{"do": …, "bootstrap": "host:port", "case": {…}}``, and writes one line for each, in order:
``{"ok": …}`` or ``{"error": "…"}``. It ends when its input does. Keys, values and header values
are in base64, or null; offsets and timestamps are numbers.

================= =========================================== ====================================
do                a case                                      its "ok"
================= =========================================== ====================================
about             {}                                          version, compressions, what it lacks
create            topic, partitions, configs                  null
describe          topic                                       partitions (their count), or null
cluster           {}                                          ports (of the brokers, sorted)
describe_configs  topic                                       every config's name and value
alter_configs     topic, configs                              null
create_partitions topic, partitions (the new total)           null
produce           topic, compression, acks, idempotent,       the records' offsets (null: unknown)
                  max_bytes (of a request), records
consume           topic, starts (offsets), counts (records    the records, with offsets
                  of each partition)
offsets           topic, partition, timestamp                 earliest, latest, at
delete_records    topic, partition, before (an offset)        null
delete            topic                                       null
================= =========================================== ====================================

``about`` answers ``cannot``: for each check (``compat/checks.py``) that the client doesn't offer,
the reason. Unless it says otherwise: ``timestamps`` are its to set, topics are created with
``create_configs``, and it can send ``null_headers`` (headers without a value),
``repeated_headers`` (two of one name), ``empty`` keys and values that are not null, and values of
any ``bytes``, not only lines of text.

A consumer is assigned its partitions; it never joins a group. A ``describe`` of a topic that
isn't there is null and creates nothing.
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


class Refused(Exception):
    """The broker answered with an error that the client reports as a value."""


def serve(doers: Mapping[str, Doer]) -> None:
    """Answer jobs until there are no more."""
    answers = sys.stdout
    # What a library prints by itself must not get between the answers.
    sys.stdout = sys.stderr
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"ok": doers[job["do"]](job["bootstrap"], job["case"])}
        except Exception as error:  # noqa: BLE001  a case that fails is a result like any other
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def pack(data: bytes | None) -> str | None:
    """Bytes as they travel in JSON."""
    return None if data is None else b64encode(data).decode()


def unpack(text: str | None) -> bytes | None:
    """The bytes again."""
    return None if text is None else b64decode(text)
