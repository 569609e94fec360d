"""Plays a scenario against one server and returns what it answered, step by step.

`$name` is a value that an earlier step saved, `$now` the time in milliseconds, and otherwise a
name that no other run has. Answers are as they came; `compare` takes out what may differ.
"""

import re
import secrets
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from compat.oracle import schema
from compat.oracle.connection import CLOSED, FUTURE_VERSION, Connection
from compat.oracle.scenario import Scenario, Step, Versions
from compat.wire import Address

UNTIL_S = 15.0
READY_S = 30.0

_SYMBOL = re.compile(r"\$([a-z][a-z0-9_]*)")
_TOKEN = secrets.token_hex(3)
_runs = count(1)


class NotPlayable(Exception):
    """A step that has to work before anything can be compared did not."""


class Answer(NamedTuple):
    """What a step brought. `step` says which one in words."""

    step: str
    api: str
    answer: dict[str, Any]


class Played(NamedTuple):
    """The answers, and the values that symbols had."""

    answers: list[Answer]
    symbols: dict[str, Any]


def play(scenario: Scenario, versions: Mapping[str, int], known: Versions, to: Address) -> Played:
    """Run it once, with these versions."""
    player = _Player(versions, known, to)
    try:
        for number, step in enumerate(scenario.steps, 1):
            player.take(number, step)
    finally:
        player.close()
    return Played(player.answers, player.symbols)


class _Player:
    def __init__(self, versions: Mapping[str, int], known: Versions, to: Address) -> None:
        self._versions = versions
        self._known = known
        self._to = to
        self._unique = f"{_TOKEN}{next(_runs):06d}"
        self._connections: dict[str, Connection] = {}
        self._pending: dict[str, tuple[Connection, int, Step, str]] = {}
        self.answers: list[Answer] = []
        self.symbols: dict[str, Any] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def take(self, number: int, step: Step) -> None:
        if step.kind == "wait":
            time.sleep(step.body)
        elif step.kind == "topic":
            self._make_topic(step)
        elif step.kind == "close":
            self._connection(step.body).close()
        elif step.kind == "answer":
            connection, sent, asked, label = self._pending.pop(step.body)
            self._keep(asked, label, connection.receive(sent))
        else:
            self._ask(f"{number} {step.kind}", step)

    def _ask(self, label: str, step: Step) -> None:
        options = step.options
        connection = self._connection(options.get("on", "main"))
        sent = self._send(connection, step)
        if options.get("pending"):
            self._pending[options["pending"]] = (connection, sent, step, label)
            return
        if step.kind == "Produce" and (step.body or {}).get("acks") == 0:
            self.answers.append(Answer(label, step.kind, {"asked for no answer": True}))
            return
        answer = connection.receive(sent)
        until = self._filled(options.get("until", {}))
        deadline = time.monotonic() + UNTIL_S
        pause_s = 0.01
        while not _matches(answer, until) and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.2)
            connection = self._connection(options.get("on", "main"))
            answer = connection.receive(self._send(connection, step))
        if options.get("unseen") and not _matches(answer, until):
            raise NotPlayable(f"step {label}: {dict(until)} never came: {answer}")
        self._keep(step, label, answer)

    def _send(self, connection: Connection, step: Step) -> int:
        api = schema.apis()[step.kind]
        version = step.options.get(
            "version", self._versions.get(api.name, self._known[api.name][1])
        )
        if version == "future":
            version = FUTURE_VERSION
        client_id = str(self._filled(step.options.get("client_id", "oracle")))
        return connection.send(api, version, self._filled(step.body or {}), client_id)

    def _keep(self, step: Step, label: str, answer: dict[str, Any]) -> None:
        for symbol, path in step.options.get("save", {}).items():
            value = at(answer, path)
            if value is None:
                raise NotPlayable(f"step {label}: nothing to save at {path} of {answer}")
            self.symbols[symbol] = value
        if step.options.get("unseen"):
            return
        for path in _listed(step.options.get("keep")):
            _only_ours(answer, path, [v for v in self.symbols.values() if isinstance(v, str)])
        self.answers.append(Answer(label, step.kind, answer))

    def _connection(self, name: str) -> Connection:
        found = self._connections.get(name)
        if found is None or found.is_closed:
            found = self._connections[name] = Connection(self._to)
        return found

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            whole = _SYMBOL.fullmatch(value)
            if whole:
                return self._value(whole[1])
            return _SYMBOL.sub(lambda found: str(self._value(found[1])), value)
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, Mapping):
            return {self._filled(key): self._filled(each) for key, each in value.items()}
        return value

    def _value(self, name: str) -> Any:
        if name not in self.symbols:
            now = int(time.time() * 1000)
            self.symbols[name] = now if name == "now" else f"{name}-{self._unique}"
        return self.symbols[name]

    def _make_topic(self, step: Step) -> None:
        """Create a topic, wait until it can be used, and save its id as `$<name>_id`."""
        name = self._filled(step.body)
        partitions = step.options.get("partitions", 1)
        configs = [
            {"name": key, "value": str(value)}
            for key, value in self._filled(step.options.get("configs", {})).items()
        ]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        self._until_fine(
            "CreateTopics", {"topics": [{**topic, "configs": configs}], "timeout": 30_000}
        )
        indexes = [{"partition_index": i, "timestamp": -1} for i in range(partitions)]
        self._until_fine("ListOffsets", {"topics": [{"name": name, "partitions": indexes}]})
        answer = self._until_fine("Metadata", {"topics": [{"name": name}]})
        self.symbols[f"{step.body.removeprefix('$')}_id"] = at(answer, "topics.0.topic_id")
        for values in step.options.get("batches", []):
            records = {"batch": {"records": values}}
            self._until_fine(
                "Produce",
                {
                    "acks": -1,
                    "timeout": 30_000,
                    "topic_data": [
                        {
                            "name": name,
                            "topic_id": self.symbols[f"{step.body.removeprefix('$')}_id"],
                            "partition_data": [{"index": 0, "records": records}],
                        }
                    ],
                },
            )

    def _until_fine(self, api: str, body: Mapping[str, Any]) -> dict[str, Any]:
        connection = self._connection("(preparing)")
        deadline = time.monotonic() + READY_S
        while True:
            answer = connection.receive(self._send(connection, Step(api, body, {})))
            codes = _codes(answer)
            if codes and set(codes) <= {"none"}:
                return answer
            refused = api == "CreateTopics" and "topic_already_exists" not in codes
            if refused or time.monotonic() > deadline or answer == CLOSED:
                raise NotPlayable(f"{api} while preparing: {answer}")
            if api == "CreateTopics":
                return answer
            time.sleep(0.01)


def at(value: Any, path: str) -> Any:
    """The value at a dotted path, None if there is none."""
    for part in path.split("."):
        if isinstance(value, list):
            index = int(part)
            value = value[index] if -len(value) <= index < len(value) else None
        elif isinstance(value, Mapping):
            value = value.get(part)
        else:
            return None
    return value


def _matches(answer: Any, until: Mapping[str, Any]) -> bool:
    return all(at(answer, path) == wanted for path, wanted in until.items())


def _codes(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [code for each in value for code in _codes(each)]
    if isinstance(value, Mapping):
        own = [value["error_code"]] if "error_code" in value else []
        return own + [code for each in value.values() for code in _codes(each)]
    return []


def _listed(value: Any) -> list[str]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _only_ours(answer: Mapping[str, Any], path: str, ours: list[str]) -> None:
    """Keep of a list only the items whose field names something of this run: `topics.name`."""
    where, _, field = path.rpartition(".")
    items = at(answer, where)
    if isinstance(items, list):
        items[:] = [item for item in items if item.get(field) in ours]
