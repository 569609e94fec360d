"""Kafka's own command-line tools, as a user would call them, none of which needs a group."""

import json
import re
from collections.abc import Callable, Mapping

from compat import toolchain
from compat.load import COMMITS_AT_ITS_END, LoadFailed
from compat.load import run as run_process

RECORDS = 500


def run(bootstrap: str) -> dict[str, str]:
    """Each tool's name and what is wrong; an empty string if nothing is."""
    checks: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("BrokerApiVersionsCommand", _api_versions),
        ("TopicCommand --create, --list", _topics),
        ("VerifiableProducer", _verifiable_producer),
        ("GetOffsetShell", _offsets),
        ("ConsoleConsumer --partition --offset", _console_consumer),
        ("ProducerPerformance", _performance),
        ("EndToEndLatency", _end_to_end),
        ("TopicCommand --delete", _delete),
    )
    results = {}
    for name, check in checks:
        try:
            results[name] = check(bootstrap)
        except LoadFailed as failure:
            results[name] = str(failure)
    return results


def _tool(name: str, *arguments: str, forgive: str | None = None) -> str:
    # These run for a second: the JVM's best compiler would cost more than it brings.
    fast_start = ("-XX:TieredStopAtLevel=1", "-Xmx256m")
    command = toolchain.java(toolchain.TOOLS + name, *arguments, jvm=fast_start)
    return run_process(command, forgive)


def _api_versions(bootstrap: str) -> str:
    output = _tool("BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    return "" if re.search(r"Produce\(0\): .*usable", output) else f"no Produce in:\n{output}"


def _topics(bootstrap: str) -> str:
    arguments = ("--bootstrap-server", bootstrap)
    _tool("TopicCommand", *arguments, "--create", "--topic", "tools", "--partitions", "2")
    listed = _tool("TopicCommand", *arguments, "--list").split()
    return "" if "tools" in listed else f"tools is not in {listed}"


def _verifiable_producer(bootstrap: str) -> str:
    output = _tool(
        "VerifiableProducer",
        *("--bootstrap-server", bootstrap, "--topic", "tools"),
        *("--max-messages", str(RECORDS), "--acks", "-1"),
    )
    last = json.loads(output.splitlines()[-1])
    return "" if last.get("acked") == RECORDS else f"{last}"


def _offsets(bootstrap: str) -> str:
    output = _tool("GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", "tools")
    ends = [int(line.rpartition(":")[2]) for line in output.split()]
    return "" if sum(ends) == RECORDS and len(ends) == 2 else f"{output!r}"


def _console_consumer(bootstrap: str) -> str:
    output = _tool("GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", "tools")
    ends = [int(line.rpartition(":")[2]) for line in output.split()]
    values: set[str] = set()
    for partition, end in enumerate(ends):
        if end:
            values |= set(_console(bootstrap, partition, end))
    wanted = {str(i) for i in range(RECORDS)}
    return "" if values == wanted else f"{len(values & wanted)} of {RECORDS} values"


def _console(bootstrap: str, partition: int, count: int) -> list[str]:
    return _tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", "tools"),
        *("--partition", str(partition), "--offset", "earliest"),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
    ).split()


def _performance(bootstrap: str) -> str:
    output = _tool(
        "ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", "tools", "--num-records", "5000"),
        *("--record-size", "1000", "--throughput", "-1", "--command-property", "acks=all"),
    )
    return "" if "5000 records sent" in output else output


def _end_to_end(bootstrap: str) -> str:
    output = _tool(
        "EndToEndLatency",
        *("--bootstrap-server", bootstrap, "--topic", "tools-latency", "--num-records", "100"),
        *("--record-size", "100", "--producer-acks", "all"),
        forgive=COMMITS_AT_ITS_END,
    )
    return "" if "99th" in output else output


def _delete(bootstrap: str) -> str:
    arguments = ("--bootstrap-server", bootstrap)
    _tool("TopicCommand", *arguments, "--delete", "--topic", "tools-latency")
    listed = _tool("TopicCommand", *arguments, "--list").split()
    return "" if "tools-latency" not in listed else "tools-latency is still there"


def table(results: Mapping[str, str]) -> str:
    """A line for each tool."""
    width = max(map(len, results), default=0)
    lines = [f"| {'tool'.ljust(width)} |   |", f"| {'-' * width} | - |"]
    lines += [f"| {name.ljust(width)} | {'✗' if said else '✓'} |" for name, said in results.items()]
    return "\n".join(lines)
