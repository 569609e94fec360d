"""``python -m compat.run``: real clients write to a broker and must get back what they wrote.

Every client, in processes of its own, creates topics, writes them with each compression, with
acks 0, 1 and all, idempotent and not, and reads them again; then another client reads them. Every
offset, key, value, header and timestamp is compared. Afterwards Kafka's own tools have a turn.

``--against kafka`` runs the same against Apache Kafka, which shows that the checks are right.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compat import records, servers, toolchain, tools
from compat.clients.job import Record
from compat.servers import Server, ServerFailed
from compat.wire import Wire

PROCESS_TIMEOUT_S = 300.0
COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")
OK, FAILED, CANNOT = "ok", "FAILED", "-"


class Variant(NamedTuple):
    """One way to write; its column in the table."""

    column: str
    compression: str
    acks: str
    idempotent: bool

    @property
    def topic(self) -> str:
        kind = "idempotent" if self.idempotent else "plain"
        return f"{self.compression}-{self.acks}-{kind}"


VARIANTS = (
    Variant("acks=0", "none", "0", False),
    Variant("acks=1", "none", "1", False),
    Variant("acks=all", "none", "all", False),
    Variant("idempotent", "none", "all", True),
    *(
        Variant(each, each, "all", idempotent)
        for each in COMPRESSIONS
        for idempotent in (False, True)
    ),
)
COLUMNS = ("create", "acks=0", "acks=1", "acks=all", "idempotent", *COMPRESSIONS, "offsets")


def _module(name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"compat.clients.{name}"]


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "kcat": _module("kcat"),
    "java": toolchain.java_client,
    "librdkafka": _module("librdkafka"),
    "kafka-python": _module("kafka_python"),
    "aiokafka": _module("aiokafka_client"),
    "franz-go": toolchain.franz_client,
}


@dataclass(slots=True)
class Client:
    """A client program and what it said about itself."""

    name: str
    command: list[str]
    version: str = ""
    compressions: tuple[str, ...] = ()
    creates: bool = True
    timestamps: bool = True
    null_headers: bool = True
    plain: bool = False

    def describe(self) -> None:
        """Ask the client what it can."""
        (answer,) = self.ask("describe", "", [{}])
        if "error" in answer:
            raise toolchain.Missing(f"{self.name}: {answer['error']}")
        about = answer["ok"]
        self.version = about["version"]
        self.compressions = tuple(about["compressions"])
        self.creates = about.get("creates", True)
        self.timestamps = about.get("timestamps", True)
        self.null_headers = about.get("null_headers", True)
        self.plain = about.get("plain", False)

    def ask(self, do: str, bootstrap: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A result for each case; a process that fails is an error in each of them."""
        job = json.dumps({"do": do, "bootstrap": bootstrap, "cases": cases})
        try:
            done = subprocess.run(
                self.command,
                input=job,
                capture_output=True,
                text=True,
                timeout=PROCESS_TIMEOUT_S,
                check=False,
                cwd=toolchain.ROOT,
            )
            results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
        except subprocess.TimeoutExpired:
            return [{"error": f"no end within {PROCESS_TIMEOUT_S:.0f} s"}] * len(cases)
        except (json.JSONDecodeError, KeyError):
            return [{"error": f"the process failed: {done.stderr.strip()[-400:]}"}] * len(cases)
        return results


@dataclass(slots=True)
class Line:
    """A row of the table, and what went wrong in words."""

    client: str
    cells: dict[str, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def note(self, column: str, where: str, problem: str | None) -> None:
        """A column is ok when all that was noted for it is."""
        if problem is not None:
            self.cells[column] = FAILED
            self.complaints.append(f"{self.client}, {where}: {problem}")
        else:
            self.cells.setdefault(column, OK)


def main() -> int:
    """Run the clients and print the table."""
    options = _options()
    servers.exit_on_sigterm()
    kind = "kafka-default" if options.against == "kafka" else "dray"
    began = time.perf_counter()
    try:
        clients = [Client(name, CLIENTS[name]()) for name in CLIENTS]
        for client in clients:
            client.describe()
        with servers.scratch() as folder, servers.make(kind, folder / kind) as server:
            lines, others = _run_all(server, clients, options)
            checked_tools = tools.run(server.bootstrap) if not options.only else []
    except (toolchain.Missing, ServerFailed) as problem:
        print(problem, file=sys.stderr)
        return 2
    print(_table(lines, others, {client.name: client for client in clients}))
    if checked_tools:
        print(
            "\n"
            + "\n".join(f"{OK if not said else FAILED:7}{name}" for name, said in checked_tools)
        )
    complaints = [each for line in lines for each in line.complaints]
    complaints += [f"{name}: {said}" for name, said in checked_tools if said]
    for complaint in complaints:
        print(f"\n{complaint}")
    outcome = f"{len(complaints)} failures" if complaints else "all well"
    print(f"\n{outcome}, against {options.against}, in {time.perf_counter() - began:.0f} s")
    return 1 if complaints else 0


def _run_all(
    server: Server, clients: list[Client], options: argparse.Namespace
) -> tuple[list[Line], list[str]]:
    lines = []
    for i, client in enumerate(clients):
        if options.only and client.name not in options.only:
            continue
        print(f"{client.name} {client.version} … ", end="", flush=True, file=sys.stderr)
        others = clients[i + 1 :] + clients[:i]
        lines.append(_run_client(server, client, others if options.every_reader else others[:1]))
        print("ok" if not lines[-1].complaints else "FAILED", file=sys.stderr)
    readers = [f"read by {client.name}" for client in clients]
    return lines, [each for each in readers if any(each in line.cells for line in lines)]


def _run_client(server: Server, client: Client, others: list[Client]) -> Line:
    line = Line(client.name)
    sent = records.make(
        records.RECORDS_PER_CASE,
        int(time.time() * 1000),
        plain=client.plain,
        null_headers=client.null_headers,
    )
    able = [variant for variant in VARIANTS if variant.compression in client.compressions]
    for variant in VARIANTS:
        if variant not in able:
            line.cells[variant.column] = CANNOT
    topics = [f"{client.name}-{variant.topic}" for variant in able]
    _create(server, client, topics, line)

    results = client.ask(
        "produce",
        server.bootstrap,
        [
            {
                "topic": topic,
                "compression": variant.compression,
                "acks": variant.acks,
                "idempotent": variant.idempotent,
                "records": sent,
            }
            for topic, variant in zip(topics, able, strict=True)
        ],
    )
    written = []
    for topic, variant, result in zip(topics, able, results, strict=True):
        problem = _check_offsets(sent, variant, result)
        line.note(variant.column, f"writing {topic}", problem)
        if problem is None:
            written.append((topic, variant))

    _read(server, client, client, written, sent, line)
    for other in others:
        _read(server, other, client, written, sent, line)
    _list_offsets(server, client, sent, line)
    return line


def _create(server: Server, client: Client, topics: list[str], line: Line) -> None:
    if client.creates:
        cases = [{"topic": topic, "partitions": records.PARTITIONS} for topic in topics]
        for topic, result in zip(
            topics, client.ask("create", server.bootstrap, cases), strict=True
        ):
            line.note("create", f"creating {topic}", result.get("error"))
        return
    line.cells["create"] = CANNOT
    with Wire(server.address) as wire:
        for topic in topics:
            wire.create_topic(topic, records.PARTITIONS)


def _check_offsets(sent: list[Record], variant: Variant, result: dict[str, Any]) -> str | None:
    if "error" in result:
        return str(result["error"])
    expected = records.expected_offsets(sent)
    if variant.acks == "0":
        # No answer, so the client can't know.
        return None if len(result["ok"]) == len(sent) else "not one result for each record"
    return None if result["ok"] == expected else f"offsets {result['ok']}, not {expected}"


def _read(
    server: Server,
    reader: Client,
    writer: Client,
    written: list[tuple[str, Variant]],
    sent: list[Record],
    line: Line,
) -> None:
    readable = [each for each in written if each[1].compression in reader.compressions]
    cases = [{"topic": topic, "ends": records.ends(sent)} for topic, _ in readable]
    results = reader.ask("consume", server.bootstrap, cases)
    for (topic, variant), result in zip(readable, results, strict=True):
        problem = result.get("error") or records.compare(
            sent, result["ok"], timestamps=writer.timestamps
        )
        if reader is writer:
            line.note(variant.column, f"reading {topic}", problem)
        else:
            line.note(f"read by {reader.name}", f"reading {topic} with {reader.name}", problem)


def _list_offsets(server: Server, client: Client, sent: list[Record], line: Line) -> None:
    """Earliest, latest, and the offset of a record's own timestamp in the middle."""
    in_first = [record for record in sent if record["partition"] == 0]
    middle = len(in_first) // 2 if client.timestamps else 0
    timestamp = in_first[middle]["timestamp"] if client.timestamps else 1
    topic = f"{client.name}-{VARIANTS[2].topic}"
    case = {"topic": topic, "partition": 0, "timestamp": timestamp}
    (result,) = client.ask("offsets", server.bootstrap, [case])
    expected = {"earliest": 0, "latest": len(in_first), "at": middle}
    problem = result.get("error")
    if problem is None and result["ok"] != expected:
        problem = f"{result['ok']}, not {expected}"
    line.note("offsets", f"offsets of {topic}", problem)


def _table(lines: list[Line], others: list[str], clients: dict[str, Client]) -> str:
    heads = ["client", *COLUMNS, *others]
    rows = [
        [
            f"{line.client} {clients[line.client].version}",
            *(line.cells.get(column, "") for column in (*COLUMNS, *others)),
        ]
        for line in lines
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [heads, rule, *rows]
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compat.run", description="Real clients against a broker."
    )
    parser.add_argument("--against", choices=("dray", "kafka"), default="dray")
    parser.add_argument(
        "--only", action="append", choices=list(CLIENTS), help="only this client; may be repeated"
    )
    parser.add_argument(
        "--every-reader",
        action="store_true",
        help="read with every other client, not only with the next",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
