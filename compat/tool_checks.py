"""What Kafka's tools are made to do, none of which needs a group.

Later checks use the topic that earlier ones made.
"""

import json
import re
import tempfile
from pathlib import Path

from compat.tools import Check, Tools, has, settles

TOPIC = "tools"
PARTITIONS = 3
RECORDS = 500
PERFORMANCE_RECORDS = 5000


def _api_versions(tools: Tools) -> str:
    output = tools.run("BrokerApiVersionsCommand")
    return "" if re.search(r"Produce\(0\): .*usable", output) else f"no Produce in:\n{output}"


def _cluster(tools: Tools) -> str:
    wrong = has(tools.run("ClusterTool", "cluster-id"), "Cluster ID: ")
    port = tools.bootstrap.rpartition(":")[2]
    return wrong or has(tools.run("ClusterTool", "list-endpoints"), f" {port} ")


def _broker_id(tools: Tools) -> str:
    found = re.search(r"\(id: (\d+)", tools.run("BrokerApiVersionsCommand"))
    return found[1] if found else "0"


def _topics_create(tools: Tools) -> str:
    tools.run(
        "TopicCommand",
        *("--create", "--topic", TOPIC, "--partitions", "2", "--replication-factor", "1"),
        *("--config", "retention.ms=123456789"),
    )
    return settles(lambda: has(tools.run("TopicCommand", "--list"), TOPIC))


def _topics_describe(tools: Tools) -> str:
    output = tools.run("TopicCommand", "--describe", "--topic", TOPIC)
    wanted = ("PartitionCount: 2", "ReplicationFactor: 1", "retention.ms=123456789", "Partition: 1")
    return has(output, *wanted)


def _topics_alter(tools: Tools) -> str:
    tools.run("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", str(PARTITIONS))
    count = f"PartitionCount: {PARTITIONS}"
    return settles(lambda: has(tools.run("TopicCommand", "--describe", "--topic", TOPIC), count))


def _configs_topic(tools: Tools) -> str:
    entity = ("--entity-type", "topics", "--entity-name", TOPIC)
    added = "max.message.bytes=2000000,cleanup.policy=[compact,delete]"
    tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", added)
    wanted = ("max.message.bytes=2000000", "cleanup.policy=compact,delete", "synonyms={")
    describe = ("kafka.admin.ConfigCommand", "--describe", *entity)
    wrong = settles(lambda: has(tools.run(*describe), *wanted))
    if wrong:
        return wrong
    removed = "max.message.bytes,cleanup.policy"
    tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", removed)
    wanted = ("max.message.bytes=1048588", "cleanup.policy=delete", "DEFAULT_CONFIG")
    return settles(lambda: has(tools.run(*describe, "--all"), *wanted))


def _configs_broker(tools: Tools) -> str:
    entity = ("--entity-type", "brokers", "--entity-name", _broker_id(tools))
    output = tools.run("kafka.admin.ConfigCommand", "--describe", "--all", *entity)
    wrong = has(output, "num.partitions=1", "message.max.bytes=1048588")
    if wrong:
        return wrong
    default = ("--entity-type", "brokers", "--entity-default")
    changed = "message.max.bytes=1500000"
    tools.run("kafka.admin.ConfigCommand", "--alter", *default, "--add-config", changed)
    wrong = settles(
        lambda: has(tools.run("kafka.admin.ConfigCommand", "--describe", *default), changed)
    )
    back = "message.max.bytes"
    tools.run("kafka.admin.ConfigCommand", "--alter", *default, "--delete-config", back)
    return wrong


def _configs_quota(tools: Tools) -> str:
    entity = ("--entity-type", "clients", "--entity-name", "somebody")
    added = "producer_byte_rate=1048576"
    tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", added)
    wrong = settles(
        lambda: has(tools.run("kafka.admin.ConfigCommand", "--describe", *entity), added)
    )
    removed = "producer_byte_rate"
    tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", removed)
    return wrong


def _console_producer(tools: Tools) -> str:
    tools.run(
        "ConsoleProducer",
        *("--topic", TOPIC, "--reader-property", "parse.key=true"),
        *("--reader-property", "parse.headers=true", "--command-property", "acks=all"),
        text="".join(f"trace:{i}\tkey-{i}\tconsole {i}\n" for i in range(20)),
    )
    return "" if sum(tools.ends(TOPIC)) == 20 else f"offsets {tools.ends(TOPIC)}"


def _console_consumer(tools: Tools) -> str:
    values: list[str] = []
    for partition, end in enumerate(tools.ends(TOPIC)):
        if end:
            values += tools.run(
                "consumer.ConsoleConsumer",
                *("--topic", TOPIC, "--partition", str(partition), "--offset", "earliest"),
                *("--max-messages", str(end), "--timeout-ms", "20000"),
                *("--formatter-property", "print.key=true"),
                *("--formatter-property", "print.headers=true"),
                *("--formatter-property", "print.offset=true"),
            ).splitlines()
    found = sorted(value.partition("\t")[2] for value in values)
    wanted = sorted(f"trace:{i}\tkey-{i}\tconsole {i}" for i in range(20))
    return "" if found == wanted else f"{found[:5]} … instead of {wanted[:5]} …"


def _verifiable_producer(tools: Tools) -> str:
    before = sum(tools.ends(TOPIC))
    output = tools.run_alone(
        "VerifiableProducer",
        *("--topic", TOPIC, "--max-messages", str(RECORDS), "--acks", "-1"),
    )
    last = json.loads(output.splitlines()[-1])
    if last.get("acked") != RECORDS:
        return str(last)
    after = sum(tools.ends(TOPIC))
    return "" if after == before + RECORDS else f"{after - before} records, not {RECORDS}"


def _offsets(tools: Tools) -> str:
    earliest, latest = (
        tools.ends(TOPIC, "--time", "earliest"),
        tools.ends(TOPIC, "--time", "latest"),
    )
    newest = tools.ends(TOPIC, "--time", "max-timestamp")
    if earliest != [0] * PARTITIONS or sum(latest) != 20 + RECORDS:
        return f"earliest {earliest}, latest {latest}"
    # The record with the largest timestamp isn't always the last one.
    well = all(0 <= at < end for at, end in zip(newest, latest, strict=True) if end)
    return "" if well else f"max-timestamp {newest}, latest {latest}"


def _read(tools: Tools, partition: int, offset: int, count: int) -> list[str]:
    return tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", TOPIC, "--partition", str(partition), "--offset", str(offset)),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
    ).splitlines()


def _middle(tools: Tools) -> str:
    ends = tools.ends(TOPIC)
    partition = ends.index(max(ends))
    whole = _read(tools, partition, 0, ends[partition])
    middle = ends[partition] // 2
    half = _read(tools, partition, middle, ends[partition] - middle)
    return "" if half == whole[middle:] else f"{half[:3]} …, not {whole[middle:][:3]} …"


def _performance(tools: Tools) -> str:
    output = tools.run(
        "ProducerPerformance",
        *("--topic", TOPIC, "--num-records", str(PERFORMANCE_RECORDS), "--record-size", "1000"),
        *("--throughput", "-1", "--command-property", "acks=all"),
    )
    return has(output, f"{PERFORMANCE_RECORDS} records sent")


def _log_dirs(tools: Tools) -> str:
    output = tools.run("LogDirsCommand", "--describe", "--topic-list", TOPIC)
    (found,) = json.loads(output.strip().splitlines()[-1])["brokers"]
    sizes = {each["partition"]: each["size"] for each in found["logDirs"][0]["partitions"]}
    wanted = {f"{TOPIC}-{partition}" for partition in range(PARTITIONS)}
    if set(sizes) != wanted:
        return f"partitions {sorted(sizes)}"
    stored = sum(sizes.values())
    return "" if stored > PERFORMANCE_RECORDS * 1000 else f"{stored} bytes in all"


def _delete_records(tools: Tools) -> str:
    ends = tools.ends(TOPIC)
    places = [
        {"topic": TOPIC, "partition": partition, "offset": end // 2}
        for partition, end in enumerate(ends)
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.json"
        file.write_text(json.dumps({"version": 1, "partitions": places}))
        output = tools.run("DeleteRecordsCommand", "--offset-json-file", str(file))
    earliest = tools.ends(TOPIC, "--time", "earliest")
    if earliest != [end // 2 for end in ends]:
        return f"earliest {earliest} of {ends}:\n{output}"
    return ""


def _reassign(tools: Tools) -> str:
    return has(tools.run("reassign.ReassignPartitionsCommand", "--list"), "No partition reassign")


def _elect(tools: Tools) -> str:
    output = tools.run(
        "LeaderElectionCommand",
        *("--election-type", "preferred", "--topic", TOPIC, "--partition", "0"),
    )
    return has(output, "Valid replica already elected")


def _end_to_end(tools: Tools) -> str:
    output = tools.run(
        "EndToEndLatency",
        *("--topic", "tools-latency", "--num-records", "100"),
        *("--record-size", "100", "--producer-acks", "all"),
    )
    return has(output, "99th")


def _topics_delete(tools: Tools) -> str:
    tools.run("TopicCommand", "--delete", "--topic", TOPIC)

    def still_there() -> str:
        listed = tools.run("TopicCommand", "--list").split()
        return f"{TOPIC} is still there" if TOPIC in listed else ""

    return settles(still_there)


CHECKS: dict[str, Check] = {
    "kafka-broker-api-versions": _api_versions,
    "kafka-cluster": _cluster,
    "kafka-topics --create, --list": _topics_create,
    "kafka-topics --describe": _topics_describe,
    "kafka-topics --alter": _topics_alter,
    "kafka-configs, topics": _configs_topic,
    "kafka-configs, brokers": _configs_broker,
    "kafka-configs, clients (quotas)": _configs_quota,
    "kafka-console-producer": _console_producer,
    "kafka-console-consumer": _console_consumer,
    "kafka-verifiable-producer": _verifiable_producer,
    "kafka-get-offsets": _offsets,
    "kafka-console-consumer --offset": _middle,
    "kafka-producer-perf-test": _performance,
    "kafka-e2e-latency": _end_to_end,
    "kafka-log-dirs": _log_dirs,
    "kafka-delete-records": _delete_records,
    "kafka-reassign-partitions --list": _reassign,
    "kafka-leader-election": _elect,
    "kafka-topics --delete": _topics_delete,
}
