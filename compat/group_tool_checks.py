"""What Kafka's tools are made to do with consumer groups. Later checks use what earlier left."""

import json
import re

from compat.tools import Check, Tools, has, settles

TOPIC = "tools-of-groups"
PARTITIONS = 3
RECORDS = 600
CONSOLE, VERIFIABLE = "console-group", "verifiable-group"
COMMAND = "consumer.group.ConsumerGroupCommand"


def _console_consumer(tools: Tools) -> str:
    tools.run("TopicCommand", "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS))
    tools.run(
        "ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(RECORDS), "--record-size", "100"),
        *("--throughput", "-1", "--command-property", "batch.size=2000"),
    )
    output = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", TOPIC, "--group", CONSOLE, "--from-beginning"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "30000"),
    )
    count = len(output.splitlines())
    return "" if count == RECORDS else f"{count} of {RECORDS} records"


def _console_consumer_again(tools: Tools) -> str:
    # The committed offsets count: there is nothing left for this group.
    output = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", TOPIC, "--group", CONSOLE, "--from-beginning", "--timeout-ms", "6000"),
        *("--command-property", "group.protocol=consumer"),
    )
    return "" if not output.strip() else f"read again: {len(output.splitlines())} records"


def _performance(tools: Tools) -> str:
    output = tools.run(
        "ConsumerPerformance",
        *("--topic", TOPIC, "--num-records", str(RECORDS), "--timeout", "30000"),
    )
    row = output.strip().splitlines()[-1].split(", ")
    return "" if row[4:5] == [str(RECORDS)] else output


def _verifiable(tools: Tools) -> str:
    output = tools.run_alone(
        "VerifiableConsumer",
        *("--topic", TOPIC, "--group-id", VERIFIABLE, "--max-messages", str(RECORDS)),
        *("--reset-policy", "earliest", "--session-timeout", "10000"),
    )
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    count = sum(event["count"] for event in events if event["name"] == "records_consumed")
    committed = [event for event in events if event["name"] == "offsets_committed"]
    well = count == RECORDS and committed and all(event["success"] for event in committed)
    return "" if well else f"{count} records; {committed[-1:]}"


def _list(tools: Tools) -> str:
    wrong = has(tools.run(COMMAND, "--list"), CONSOLE, VERIFIABLE)
    if wrong:
        return wrong
    output = tools.run(COMMAND, "--list", "--state")
    if not re.search(rf"^{CONSOLE}\s+Empty", output, re.MULTILINE):
        return f"{CONSOLE} is not Empty in:\n{output}"
    return has(tools.run("GroupsCommand", "--list"), CONSOLE, VERIFIABLE)


def _describe(tools: Tools) -> str:
    wrong = _lags(tools, CONSOLE, 0)
    if wrong:
        return wrong
    output = tools.run(COMMAND, "--describe", "--group", CONSOLE, "--state")
    return has(output, CONSOLE, "Empty")


def _reset(tools: Tools) -> str:
    reset = (COMMAND, "--reset-offsets", "--group", CONSOLE, "--topic", TOPIC, "--to-earliest")
    output = tools.run(*reset, "--dry-run")
    wrong = has(output, TOPIC) or _lags(tools, CONSOLE, 0)
    if wrong:
        return wrong
    tools.run(*reset, "--execute")
    return _lags(tools, CONSOLE, RECORDS)


def _delete_offsets(tools: Tools) -> str:
    which = ("--group", CONSOLE, "--topic", f"{TOPIC}:0")
    output = tools.run(COMMAND, "--delete-offsets", *which)
    wrong = has(output, "Successful")
    listed = tools.run(COMMAND, "--describe", "--group", CONSOLE, "--offsets")
    still = re.search(rf"{TOPIC}\s+0\s+\d+", listed)
    return wrong or (f"partition 0 is still there:\n{listed}" if still else "")


def _delete(tools: Tools) -> str:
    output = tools.run(COMMAND, "--delete", "--group", CONSOLE, "--group", VERIFIABLE)
    wrong = has(output, "was successful")

    def still_there() -> str:
        listed = tools.run(COMMAND, "--list").split()
        return f"still there: {listed}" if {CONSOLE, VERIFIABLE} & set(listed) else ""

    return wrong or settles(still_there)


def _lags(tools: Tools, group: str, wanted: int) -> str:
    """The sum of the lags that kafka-consumer-groups shows."""
    output = tools.run(COMMAND, "--describe", "--group", group, "--offsets")
    rows = [line.split() for line in output.splitlines() if line.startswith(group)]
    lags = [int(row[5]) for row in rows]
    well = len(rows) == PARTITIONS and sum(lags) == wanted
    return "" if well else f"lags {lags}, not {wanted} in all:\n{output}"


CHECKS: dict[str, Check] = {
    "kafka-console-consumer --group": _console_consumer,
    "kafka-console-consumer --group, again, group.protocol=consumer": _console_consumer_again,
    "kafka-consumer-perf-test": _performance,
    "kafka-verifiable-consumer": _verifiable,
    "kafka-consumer-groups --list, kafka-groups --list": _list,
    "kafka-consumer-groups --describe": _describe,
    "kafka-consumer-groups --reset-offsets": _reset,
    "kafka-consumer-groups --delete-offsets": _delete_offsets,
    "kafka-consumer-groups --delete": _delete,
}
