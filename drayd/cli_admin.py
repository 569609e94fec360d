"""`drayd admin`: topics, groups, quotas and cluster over the Kafka protocol, WAL objects and the
index from the store.

Each command is a function from the parsed arguments to lines (or to a JSON value); `run` prints
them and turns errors into one sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from drayd import cli_groups, client_quotas
from drayd.cli_settings import fail, load_config
from drayd.client import EARLIEST, LATEST, Client, ClientError
from drayd.client_groups import GroupClient
from drayd.config import ConfigError, sqlite_path
from drayd.kinds import parse_host_port
from protocol.errors import ErrorCode


class _Failed(Exception):
    """A command that didn't work; the message is one sentence."""


def run(arguments: argparse.Namespace) -> int:
    """Run the command that the arguments name."""
    try:
        for line in _COMMANDS[arguments.function](arguments):
            print(line)
    except ConfigError as error:
        return fail(error, 2)
    except (ClientError, _Failed) as error:
        return fail(error)
    return 0


def _connect(arguments: argparse.Namespace) -> Client:
    try:
        address = parse_host_port(arguments.bootstrap)
    except ValueError as error:
        raise ConfigError(f'--bootstrap {error}, not "{arguments.bootstrap}".') from None
    return Client(address)


def _create_topic(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        made = client.create_topic(
            arguments.name,
            partitions=arguments.partitions,
            replication_factor=arguments.replication_factor,
            configs=dict(arguments.config),
        )
        # Version 7 of the answer has the id, older brokers leave it out.
        topic_id = getattr(made, "topic_id", None)
    if arguments.json:
        return [_json({"name": made.name, "id": topic_id, "partitions": made.num_partitions})]
    count = made.num_partitions
    return [f"Created {made.name} with {count} partition{'' if count == 1 else 's'}."]


def _list_topics(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        topics = sorted(client.topics().topics, key=lambda topic: str(topic.name))
    if arguments.json:
        return [
            _json([{"name": one.name, "partitions": len(one.partitions)} for one in topics]),
        ]
    return [str(topic.name) for topic in topics]


def _describe_topic(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        (topic,) = client.topics([arguments.name]).topics
        if topic.error_code is not ErrorCode.none:
            reason = topic.error_code.name
            raise _Failed(
                f'Can\'t describe topic "{arguments.name}": '
                f"{reason.replace('_', ' ')} ({reason.upper()})."
            )
        partitions = sorted(topic.partitions, key=lambda one: int(one.partition_index))
        numbers = [one.partition_index for one in partitions]
        start_offsets = client.offsets(arguments.name, numbers, EARLIEST)
        end_offsets = client.offsets(arguments.name, numbers, LATEST)
        sizes = client.sizes(arguments.name, numbers)
    rows = [
        {
            "partition": one.partition_index,
            "leader": one.leader_id,
            "start_offset": start_offsets[one.partition_index],
            "end_offset": end_offsets[one.partition_index],
            "bytes": sizes.get(one.partition_index, "-"),
        }
        for one in partitions
    ]
    topic_id = getattr(topic, "topic_id", None)
    if arguments.json:
        return [_json({"name": topic.name, "id": topic_id, "partitions": rows})]
    return [
        f"topic       {topic.name}",
        f"id          {topic_id or '-'}",
        f"partitions  {len(rows)}",
        "",
        *_table(rows),
    ]


def _add_partitions(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        client.add_partitions(arguments.name, arguments.count)
    if arguments.json:
        return [_json({"name": arguments.name, "partitions": arguments.count})]
    return [f"{arguments.name} has {arguments.count} partitions."]


def _delete_records(arguments: argparse.Namespace) -> Iterable[str]:
    name, partition = arguments.name, arguments.partition
    with _connect(arguments) as client:
        start = client.delete_records(name, partition, arguments.before)
    if arguments.json:
        return [_json({"name": name, "partition": partition, "start_offset": start})]
    return [f"{name}/{partition} starts at offset {start}."]


def _delete_topic(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        client.delete_topic(arguments.name)
    if arguments.json:
        return [_json({"deleted": arguments.name})]
    return [f"Deleted {arguments.name}."]


_KINDS = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
_SOURCES = {
    1: "topic",
    2: "this broker",
    3: "all brokers",
    4: "started with",
    5: "default",
    7: "client metrics",
    8: "group",
}
_DEFAULT_SOURCE = 5
_SET, _UNSET = 0, 1


def _describe_configs(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        found = client.configs(_KINDS[arguments.kind], arguments.name)
    rows = [
        {
            "key": one.name,
            "value": "(hidden)" if one.is_sensitive else one.value,
            "source": _SOURCES.get(one.config_source, str(one.config_source)),
        }
        for one in sorted(found, key=lambda one: str(one.name))
        if arguments.all or one.config_source != _DEFAULT_SOURCE
    ]
    if arguments.json:
        return [_json(rows)]
    return _table([{**row, "value": _shown(row["value"])} for row in rows])


def _shown(value: str | None) -> str:
    return "-" if value is None else value or '""'


def _alter_configs(arguments: argparse.Namespace) -> Iterable[str]:
    changes = [(key, _SET, value) for key, value in arguments.set]
    changes += [(key, _UNSET, "") for key in arguments.unset]
    if not changes:
        raise _Failed("Nothing to do: name what to change with --set KEY=VALUE or --unset KEY.")
    with _connect(arguments) as client:
        client.alter_configs(_KINDS[arguments.kind], arguments.name, changes)
    if arguments.json:
        return [_json({"altered": [key for key, _, _ in changes]})]
    whose = f"{arguments.kind} {arguments.name}" if arguments.name else "all brokers"
    return [f"Altered {', '.join(key for key, _, _ in changes)} of {whose}."]


def _describe_cluster(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        cluster = client.cluster()
    brokers = [
        {"broker": one.broker_id, "host": one.host, "port": one.port, "zone": one.rack or "-"}
        for one in sorted(cluster.brokers, key=lambda one: int(one.broker_id))
    ]
    if arguments.json:
        return [_json({"id": cluster.cluster_id, "brokers": brokers})]
    return [f"cluster  {cluster.cluster_id}", "", *_table(brokers)]


def _list_groups(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        rows = cli_groups.list_groups(GroupClient(client))
    return [_json(rows)] if arguments.json else _table(rows)


def _describe_group(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        group = cli_groups.describe_group(GroupClient(client), arguments.group)
    if arguments.json:
        return [_json(group)]
    lines = [f"{name:<10}{group[name]}" for name in ("group", "type", "state", "assignor")]
    for part in ("members", "partitions"):
        if group[part]:
            lines += ["", *_table(group[part])]
    return lines


def _reset_group(arguments: argparse.Namespace) -> Iterable[str]:
    reset = cli_groups.Reset(
        earliest=arguments.to_earliest,
        latest=arguments.to_latest,
        offset=arguments.to_offset,
        shift=arguments.shift_by,
        time_ms=arguments.to_datetime,
    )
    with _connect(arguments) as client:

        def partitions_of(topic: str) -> list[int]:
            (found,) = client.topics([topic]).topics
            if found.error_code is not ErrorCode.none:
                raise _Failed(f'There is no topic "{topic}".')
            return sorted(each.partition_index for each in found.partitions)

        rows = cli_groups.reset_group(
            GroupClient(client),
            arguments.group,
            reset,
            topics=cli_groups.parse_topics(arguments.topic),
            partitions_of=partitions_of,
            execute=arguments.execute,
        )
    if arguments.json:
        return [_json({"executed": arguments.execute, "offsets": rows})]
    if not rows:
        return ["There are no offsets to reset; name topics with --topic."]
    note = "Done." if arguments.execute else "Nothing was changed; add --execute to do it."
    return [*_table(rows), "", note]


def _delete_group(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        GroupClient(client).delete(arguments.group)
    if arguments.json:
        return [_json({"deleted": arguments.group})]
    return [f"Deleted {arguments.group}."]


def _list_quotas(arguments: argparse.Namespace) -> Iterable[str]:
    with _connect(arguments) as client:
        rows = client_quotas.list_quotas(client)
    return [_json(rows)] if arguments.json else _table(rows)


def _entity(arguments: argparse.Namespace) -> dict[str, str | None]:
    given = {"user": arguments.user, "client-id": arguments.client_id, "ip": arguments.ip}
    entity: dict[str, str | None] = {kind: name for kind, name in given.items() if name is not None}
    for kind in arguments.default:
        if kind in entity:
            raise ConfigError(f"--{kind} and --default {kind} exclude each other.")
        entity[kind] = None
    if not entity:
        raise ConfigError("Whose limits? Give --user, --client-id, --ip or --default.")
    return entity


def _set_quotas(arguments: argparse.Namespace) -> Iterable[str]:
    entity = _entity(arguments)
    with _connect(arguments) as client:
        client_quotas.alter_quotas(client, entity, dict(arguments.limits))
    return [_json({"set": dict(arguments.limits)}) if arguments.json else "Set."]


def _remove_quotas(arguments: argparse.Namespace) -> Iterable[str]:
    entity = _entity(arguments)
    removed = list(dict.fromkeys(arguments.quotas))
    with _connect(arguments) as client:
        client_quotas.alter_quotas(client, entity, {}, removed)
    return [_json({"removed": removed}) if arguments.json else "Removed."]


def _inspect_wal(arguments: argparse.Namespace) -> Iterable[str]:
    from wal.format import CorruptWal, decode
    from wal.inspect import describe

    try:
        data = arguments.file.read_bytes()
    except OSError as error:
        raise _Failed(f"Can't read {arguments.file}: {error.strerror}.") from None
    # A broken object is shown as far as it can be read, and then is an error all the same.
    yield describe(data).rstrip("\n")
    try:
        decode(data)
    except CorruptWal as error:
        raise _Failed(f"{arguments.file} is not a sound WAL object: {error}.") from None


def _show_index(arguments: argparse.Namespace) -> Iterable[str]:
    settings = load_config(arguments).settings
    path = sqlite_path(settings.metadata_url)
    if not path.is_file():
        raise _Failed(f"There is no metadata store at {path}.")

    async def gather() -> list[str]:
        from metadata.describe import describe_index
        from metadata.sqlite import SqliteStore

        store = await SqliteStore.open(path, read_only=True)
        try:
            return [
                line async for line in describe_index(store, arguments.topic, arguments.partition)
            ]
        finally:
            await store.close()

    from metadata.store import StoreError
    from metadata.topics import TopicMissing

    try:
        return asyncio.run(gather())
    except TopicMissing as error:
        raise _Failed(f"There is no such topic or partition: {error}.") from None
    except StoreError as error:
        raise _Failed(f"Can't read the metadata store at {path}: {error}.") from None


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Rows under their column names, aligned."""
    if not rows:
        return []
    lines = [[name.replace("_", " ") for name in rows[0]]]
    lines.extend([str(value) for value in row.values()] for row in rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str)


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Iterable[str]]] = {
    "create_topic": _create_topic,
    "list_topics": _list_topics,
    "describe_topic": _describe_topic,
    "add_partitions": _add_partitions,
    "delete_records": _delete_records,
    "delete_topic": _delete_topic,
    "describe_configs": _describe_configs,
    "alter_configs": _alter_configs,
    "describe_cluster": _describe_cluster,
    "list_groups": _list_groups,
    "describe_group": _describe_group,
    "reset_group": _reset_group,
    "delete_group": _delete_group,
    "list_quotas": _list_quotas,
    "set_quotas": _set_quotas,
    "remove_quotas": _remove_quotas,
    "inspect_wal": _inspect_wal,
    "show_index": _show_index,
}
