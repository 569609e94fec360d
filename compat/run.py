"""``python -m compat.run``: real clients and Kafka's own tools against a running broker.

Every client, in a process of its own, does the checks of ``compat/checks.py``; Kafka's
command-line tools do theirs (``compat/tools.py``), and so do Kafka Streams and Kafka Connect
(``compat/applications.py``). Every offset, key, value, header and timestamp
is compared. The result is one table; ``--write-readme`` puts it into the README. Before all
that the oracle (``compat/oracle``) sends the same raw requests to Dray and to Apache Kafka.

``--server kafka`` runs the same against Apache Kafka, which shows that the checks are right.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable

from compat import (
    applications,
    checks,
    group_tool_checks,
    groups,
    servers,
    table,
    tool_checks,
    toolchain,
    tools,
)
from compat.checks import LACKING, WRONG, Client, Session
from compat.program import JobFailed, Program
from compat.servers import Server, ServerFailed
from compat.table import Column


def _module(name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"compat.clients.{name}"]


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "Java": toolchain.java_client,
    "librdkafka": _module("librdkafka"),
    "kcat": _module("kcat"),
    "kafka-python": _module("kafka_python"),
    "aiokafka": _module("aiokafka_client"),
    "franz-go": lambda: toolchain.go_client("franz"),
    "Sarama": lambda: toolchain.go_client("sarama"),
    "KafkaJS": toolchain.kafkajs_client,
    "rskafka": toolchain.rust_client,
}
STAND_IN = "librdkafka"
TOOLS, GROUPS, APPLICATIONS = "tools", "groups", "applications"
ORACLE = "oracle"


def main() -> int:
    """Run everything and print the table."""
    options = _options()
    servers.exit_on_sigterm()
    began = time.perf_counter()
    differs = _differs(options)
    if options.only == [ORACLE]:
        return int(differs)
    try:
        with contextlib.ExitStack() as stack:
            clients = _start_clients(stack, options.only)
            server = _start_server(stack, options.server)
            columns = [_run_client(server, name, clients) for name in _chosen(clients, options)]
            tried = _run_tools(server, options)
            grouped = _run_groups(stack, options, clients)
            built = _run_applications(stack, options)
    except (toolchain.Missing, ServerFailed) as problem:
        print(problem, file=sys.stderr)
        return 2
    if tried:
        print(tools.table(tried), end="\n\n")
    if grouped:
        print(tools.table(grouped, "consumer groups"), end="\n\n")
    if built:
        print(tools.table(built, "application"), end="\n\n")
    if columns:
        print(table.table(columns, [check.name for check in checks.CHECKS]), end="\n\n")
    for line in table.reasons(columns, LACKING):
        print(f"not offered: {line}")
    failures = table.reasons(columns, WRONG)
    failures += [f"{name}: {said}" for name, said in (tried | grouped | built).items() if said]
    if differs:
        failures.append("Dray doesn't answer as Kafka does: see above")
    for line in failures:
        print(f"\nFAILED {line}")
    outcome = f"{len(failures)} failures" if failures else "all well"
    print(f"\n{outcome}, against {options.server}, in {time.perf_counter() - began:.0f} s")
    if options.write_readme and not options.only and options.server == "dray":
        table.write(toolchain.ROOT / "README.md", _for_readme(columns, tried, grouped, built))
    return 1 if failures else 0


def _differs(options: argparse.Namespace) -> bool:
    """Whether the oracle finds a difference between Kafka and Dray, which it prints."""
    if options.server != "dray" or ORACLE not in (options.only or [ORACLE]):
        return False
    command = [sys.executable, "-m", "compat.oracle", "run"]
    return subprocess.run(command, cwd=toolchain.ROOT, check=False).returncode != 0


def _start_clients(stack: contextlib.ExitStack, only: list[str] | None) -> dict[str, Client]:
    clients = {}
    for name, command in CLIENTS.items():
        # The stand-in is always there; it is also who reads what others wrote.
        if only and name not in only and name != STAND_IN and name != "Java":
            continue
        try:
            clients[name] = Client(stack.enter_context(Program(name, command())))
        except JobFailed as problem:
            raise toolchain.Missing(f"{name} can't be used: {problem}") from problem
    return clients


def _start_server(stack: contextlib.ExitStack, kind: str) -> Server:
    folder = stack.enter_context(servers.scratch())
    # Members join alone here: there is nobody to wait for. Kafka is started alike.
    settings = ["group.initial.rebalance.delay.ms=0"] if kind == "dray" else []
    return stack.enter_context(servers.make(kind, folder / kind, settings))


def _chosen(clients: dict[str, Client], options: argparse.Namespace) -> list[str]:
    return [name for name in clients if not options.only or name in options.only]


def _run_client(server: Server, name: str, clients: dict[str, Client]) -> Column:
    client = clients[name]
    # Who can't send two headers of one name doesn't show them either.
    names = [each for each in clients if clients[each].can.repeated_headers]
    after = names[(names.index(name) + 1) % len(names)] if name in names else STAND_IN
    print(f"{name} {client.version} … ", end="", flush=True, file=sys.stderr)
    began = time.perf_counter()
    results = checks.run(Session(server.bootstrap, client, clients[STAND_IN], clients[after]))
    wrong = sum(mark == WRONG for mark, _ in results.values())
    took = f"{time.perf_counter() - began:.0f} s"
    print(f"{wrong} FAILED, {took}" if wrong else f"ok, {took}", file=sys.stderr)
    client.program.close()
    return Column(name, client.version, results)


def _run_tools(server: Server, options: argparse.Namespace) -> dict[str, str]:
    if options.only and TOOLS not in options.only:
        return {}
    return tools.run(server.bootstrap, {**tool_checks.CHECKS, **group_tool_checks.CHECKS})


def _run_groups(
    stack: contextlib.ExitStack, options: argparse.Namespace, clients: dict[str, Client]
) -> dict[str, str]:
    """What is wrong with each kind of consumer group."""
    variants = [each for each in groups.VARIANTS if not options.only or each.client in options.only]
    if options.only:
        if GROUPS not in options.only:
            return {}
        variants = variants or list(groups.VARIANTS)
    folder = stack.enter_context(servers.scratch())
    server = stack.enter_context(groups.make_server(options.server, folder / "groups"))
    results = {}
    for each in variants:
        print(f"group of {each.name} … ", end="", flush=True, file=sys.stderr)
        began = time.perf_counter()
        command = CLIENTS[each.client]()
        results[each.name] = groups.run(server, each, command, clients[STAND_IN].program)
        outcome = "FAILED" if results[each.name] else "ok"
        print(f"{outcome}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return results


def _run_applications(stack: contextlib.ExitStack, options: argparse.Namespace) -> dict[str, str]:
    if APPLICATIONS not in (options.only or [APPLICATIONS]):
        return {}
    folder = stack.enter_context(servers.scratch())
    return applications.run(options.server, folder)


def _for_readme(
    columns: list[Column], tried: dict[str, str], grouped: dict[str, str], built: dict[str, str]
) -> str:
    lacking = "\n".join(f"- {line}" for line in table.reasons(columns, LACKING))
    applications = (
        "\n\nApplications, restarted, and with the broker killed under them: Streams counts\n"
        "words and restores its state; a Connect worker copies a file through a topic:\n\n"
        f"{table.compact(tools.table(built, 'application'))}"
    )
    return (
        f"{table.compact(table.table(columns, [check.name for check in checks.CHECKS]))}\n\n"
        f"✓ passed, ✗ failed, – not offered by the client:\n{lacking}\n\n"
        f"Kafka's own tools, of Apache Kafka {toolchain.KAFKA_VERSION}:\n\n"
        f"{table.compact(tools.table(tried))}\n\n"
        "Consumer groups over twelve partitions that are written to meanwhile: one member, three,\n"
        "one leaves, one joins and one is killed, one joins and the broker is killed during\n"
        "that rebalance. Nothing is skipped, only what was not committed is read again:\n\n"
        f"{table.compact(tools.table(grouped, 'consumer groups'))}"
        f"{applications if built else ''}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compat.run",
        description="Real clients against a broker.",
    )
    parser.add_argument("--server", choices=("dray", "kafka"), default="dray")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*CLIENTS, TOOLS, GROUPS, APPLICATIONS, ORACLE],
        help="only this client, Kafka's tools, (its) consumer groups, Streams and Connect, or the "
        "comparison with Kafka; "
        "may be repeated",
    )
    parser.add_argument(
        "--write-readme", action="store_true", help="put the table into README.md (a full run)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
