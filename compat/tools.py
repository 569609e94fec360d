"""Kafka's own command-line tools, as a user would call them.

They run one after the other in one JVM (``clients/java/Tools.java``), which calls the main methods
that Kafka's scripts call. A check (``tool_checks.py``, ``group_tool_checks.py``) calls some tools
and says what is wrong with what they did.
"""

import re
import time
from collections.abc import Callable, Mapping

from compat import toolchain
from compat.load import LoadFailed
from compat.load import run as run_process
from compat.program import JobFailed, Program

SETTLE_S = 10.0
POLL_S = 0.1


class Tools:
    """The tools against one server."""

    def __init__(self, program: Program, bootstrap: str) -> None:
        self._program = program
        self.bootstrap = bootstrap

    def run(self, name: str, *arguments: str, text: str = "") -> str:
        """What a tool prints; it gets the server's address and must end well."""
        main_class = name if name.startswith("kafka.") else toolchain.TOOLS + name
        # At the end: a subcommand comes before all options.
        whole = [*arguments, "--bootstrap-server", self.bootstrap]
        done = self._program.ask("tool", **{"class": main_class}, arguments=whole, input=text)
        out, err = str(done["out"]), str(done["err"])
        if done["status"]:
            said = f"{out}\n{err}".strip()
            raise JobFailed(f"{name} ended with {done['status']}: {said[-600:]}")
        return out

    def run_alone(self, name: str, *arguments: str) -> str:
        """The same in a JVM of its own, for a tool that does its last work when that ends."""
        fast_start = ("-XX:TieredStopAtLevel=1", "-Xmx256m")
        whole = (*arguments, "--bootstrap-server", self.bootstrap)
        try:
            return run_process(toolchain.java(toolchain.TOOLS + name, *whole, jvm=fast_start))
        except LoadFailed as failure:
            raise JobFailed(str(failure)) from failure

    def ends(self, topic: str, *arguments: str) -> list[int]:
        """kafka-get-offsets of a topic."""
        output = self.run("GetOffsetShell", "--topic", topic, *arguments)
        lines = [re.fullmatch(rf"{topic}:\d+:(\d*)", line) for line in output.splitlines()]
        if not all(lines):
            raise JobFailed(f"kafka-get-offsets said {output[-600:]}")
        return [int(line[1] or -1) for line in lines if line]


Check = Callable[[Tools], str]


def run(bootstrap: str, checks: Mapping[str, Check]) -> dict[str, str]:
    """Each check's name and what is wrong; an empty string if nothing is."""
    results = {}
    with Program("tools", toolchain.java_client("Tools")) as program:
        tools = Tools(program, bootstrap)
        for name, check in checks.items():
            try:
                results[name] = check(tools)
            except JobFailed as failure:
                results[name] = str(failure)
    return results


def table(results: Mapping[str, str], head: str = "tool") -> str:
    """A line for each tool."""
    width = max(map(len, [head, *results]))
    lines = [f"| {head.ljust(width)} |   |", f"| {'-' * width} | - |"]
    lines += [f"| {name.ljust(width)} | {'✗' if said else '✓'} |" for name, said in results.items()]
    return "\n".join(lines)


def settles(look: Callable[[], str]) -> str:
    """Kafka's brokers learn of a change a moment after it was answered."""
    deadline = time.monotonic() + SETTLE_S
    while (wrong := look()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return wrong


def has(output: str, *wanted: str) -> str:
    """What is missing in an output; an empty string if nothing is."""
    missing = [each for each in wanted if each not in output]
    return f"no {', no '.join(missing)} in:\n{output[-800:]}" if missing else ""
