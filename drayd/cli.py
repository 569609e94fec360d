"""The `drayd` command.

Parsing needs nothing but argparse; what a subcommand uses is imported when it runs, so that
`drayd version` and `--help` answer at once.

Exit codes: 0 done, 1 it didn't work, 2 the command line or the configuration is wrong. Errors
are one sentence on standard error; a traceback is a bug.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

from drayd import __version__
from drayd.cli_settings import add_setting_flags, fail, load_config

_DESCRIPTION = "Dray, a Kafka broker that owns nothing."

_EPILOG = """\
examples:
  drayd start                             a broker on localhost:9092, data in ./dray-data
  drayd start --listen :19092             on every interface, port 19092
  drayd admin topics create orders --partitions 6
  drayd admin topics list
  drayd config                            every setting, its value and where it comes from

`drayd COMMAND --help` says more about each command.
"""

_START_EPILOG = """\
Settings come from defaults, the --config file, DRAY_* variables and flags; later ones win.
`drayd config` lists them all.

examples:
  drayd start --data-dir /var/lib/dray --listen 0.0.0.0:9092 --advertise kafka.example.org:9092
  drayd start --listen localhost:0                   any free port; the banner says which
  drayd start --set num.partitions=3 --set log.level=debug
  DRAY_WAL_FLUSH_LINGER_MS=20 drayd start --config dray.yaml

Stop it with Ctrl-C or SIGTERM: what was accepted is flushed and answered first.
"""

_CONFIG_EPILOG = """\
A configuration file is YAML, flat or nested:

  listen: 0.0.0.0:9092
  advertise: kafka.example.org:9092
  wal:
    flush:
      max_bytes: 8MiB
      linger_ms: 5

The same setting in the environment is DRAY_WAL_FLUSH_MAX_BYTES=8MiB, and as a flag
--set wal.flush.max_bytes=8MiB. DRAY_CONFIG names a file as --config does.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="drayd",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"drayd {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    for name, summary, description in (
        (
            "start",
            "run Dray: the broker and all that goes with it",
            "Run Dray in this process: broker and HTTP, by default with SQLite metadata and a "
            "local directory for the records, all in one data folder.",
        ),
        (
            "broker",
            "run the broker alone",
            "Run the broker alone, without the services that `start` runs beside it.",
        ),
    ):
        command = _command(commands, name, summary, description, _START_EPILOG)
        add_setting_flags(command)
        command.set_defaults(run=_run_broker, role=name)

    _add_admin(commands)

    command = _command(
        commands,
        "config",
        "show every setting, its value and where it comes from",
        "Show the effective configuration for these flags, this environment and this file.",
        _CONFIG_EPILOG,
    )
    add_setting_flags(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_show_config)

    command = _command(commands, "version", "show the versions of Dray and what it runs on")
    command.set_defaults(run=_show_version)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    description: str | None = None,
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        # Here and not by argparse, which would wrap the examples as well.
        description=fill(description or summary[0].upper() + summary[1:] + ".", 78),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_admin(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    admin = _command(
        commands,
        "admin",
        "look after topics and groups, and look into the log",
        epilog="examples:\n"
        "  drayd admin topics create orders --partitions 6 --config retention.ms=86400000\n"
        "  drayd admin topics describe orders\n"
        "  drayd admin groups describe billing\n"
        "  drayd admin wal inspect dray-data/objects/…/….wo\n"
        "  drayd admin index orders 0 --data-dir dray-data\n",
    )
    nouns = admin.add_subparsers(title="commands", metavar="COMMAND", required=True)

    topics = _command(nouns, "topics", "create, list, describe, alter and delete topics")
    verbs = topics.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = _command(verbs, "create", "create a topic")
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--partitions", type=_count, default=-1, metavar="N", help="default: num.partitions"
    )
    create.add_argument(
        "--replication-factor", type=_count, default=-1, metavar="N", help=argparse.SUPPRESS
    )
    create.add_argument(
        "--config",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="a configuration of the topic, such as retention.ms=86400000; may be repeated",
    )
    listing = _command(verbs, "list", "list the names of all topics")
    describe = _command(verbs, "describe", "show a topic's id, partitions, offsets and sizes")
    describe.add_argument("name", metavar="NAME")
    add = _command(verbs, "add-partitions", "give a topic more partitions")
    add.add_argument("name", metavar="NAME")
    add.add_argument("count", type=_count, metavar="COUNT", help="how many it has afterwards")
    records = _command(
        verbs,
        "delete-records",
        "delete the first records of a partition",
        "Delete the records of a partition before an offset; those who read there go on at the "
        "new start.",
    )
    records.add_argument("name", metavar="NAME")
    records.add_argument("partition", type=int, metavar="PARTITION")
    records.add_argument(
        "--before", type=int, default=-1, metavar="OFFSET", help="default: everything that is there"
    )
    delete = _command(verbs, "delete", "delete a topic with all its records")
    delete.add_argument("name", metavar="NAME")
    alter_topic = _command(verbs, "alter", "change a topic's configuration")
    alter_topic.add_argument("name", metavar="NAME")
    configs = _command(
        nouns,
        "configs",
        "show and change the configuration of topics, brokers and groups",
        epilog="examples:\n"
        "  drayd admin configs describe topic orders\n"
        "  drayd admin configs describe broker 0 --all\n"
        "  drayd admin configs alter broker --set log.retention.ms=86400000\n"
        "  drayd admin configs alter group billing --unset consumer.session.timeout.ms\n",
    )
    config_verbs = configs.add_subparsers(title="commands", metavar="COMMAND", required=True)
    describe_configs = _command(config_verbs, "describe", "show a resource's configuration")
    alter_configs = _command(config_verbs, "alter", "change a resource's configuration")
    for command in (describe_configs, alter_configs):
        command.add_argument("kind", choices=RESOURCE_KINDS, help="the type of the resource")
        command.add_argument(
            "name",
            nargs="?",
            default="",
            metavar="NAME",
            help="its name, or a broker's id; none: the default of all brokers",
        )
    describe_configs.add_argument(
        "--all", action="store_true", help="also what nobody has set, with its default"
    )
    for command in (alter_topic, alter_configs):
        command.add_argument(
            "--set",
            action="append",
            default=[],
            type=_pair,
            metavar="KEY=VALUE",
            help="may be repeated",
        )
        command.add_argument(
            "--unset", action="append", default=[], metavar="KEY", help="may be repeated"
        )
    alter_topic.set_defaults(kind="topic")
    cluster = _command(nouns, "cluster", "show the cluster's id and its brokers")

    groups = _add_groups(nouns)

    for command, function in (
        *groups,
        *_add_quotas(nouns),
        (create, "create_topic"),
        (listing, "list_topics"),
        (describe, "describe_topic"),
        (add, "add_partitions"),
        (records, "delete_records"),
        (delete, "delete_topic"),
        (alter_topic, "alter_configs"),
        (describe_configs, "describe_configs"),
        (alter_configs, "alter_configs"),
        (cluster, "describe_cluster"),
    ):
        command.add_argument(
            "--bootstrap",
            default="localhost:9092",
            metavar="HOST:PORT",
            help="a broker of the cluster (default: localhost:9092)",
        )
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(run=_run_admin, function=function)

    wal = _command(nouns, "wal", "look into WAL objects")
    wal_verbs = wal.add_subparsers(title="commands", metavar="COMMAND", required=True)
    inspect = _command(wal_verbs, "inspect", "print a WAL object readably")
    inspect.add_argument("file", type=Path, metavar="FILE")
    inspect.set_defaults(run=_run_admin, function="inspect_wal")

    index = _command(
        nouns,
        "index",
        "print the offset index of a partition",
        "Print where each range of a partition's offsets lies. Opens the metadata store "
        "read-only, so it works while a broker runs and when none does.",
    )
    index.add_argument("topic", metavar="TOPIC")
    index.add_argument("partition", type=int, metavar="PARTITION")
    add_setting_flags(index, only=("--data-dir", "--metadata"))
    index.set_defaults(run=_run_admin, function="show_index")


def _add_groups(
    nouns: argparse._SubParsersAction[argparse.ArgumentParser],
) -> list[tuple[argparse.ArgumentParser, str]]:
    groups = _command(
        nouns,
        "groups",
        "list, describe, reset and delete consumer groups",
        epilog="examples:\n"
        "  drayd admin groups describe billing\n"
        "  drayd admin groups reset billing --to-earliest                    only shows it\n"
        "  drayd admin groups reset billing --topic orders --shift-by -100 --execute\n"
        "  drayd admin groups reset billing --topic orders:0,1 --to-datetime 2026-03-01\n",
    )
    verbs = groups.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = _command(verbs, "list", "list all groups with their type and state")
    describe = _command(verbs, "describe", "show a group's members, committed offsets and lag")
    describe.add_argument("group", metavar="GROUP")
    delete = _command(verbs, "delete", "delete a group that has no members, with its offsets")
    delete.add_argument("group", metavar="GROUP")
    reset = _command(
        verbs,
        "reset",
        "move the committed offsets of a group that has no members",
        "Show which offsets a group would get, and with --execute set them. Offsets outside of "
        "a partition's log become its beginning or its end.",
    )
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION,…]",
        help="which partitions; may be repeated (default: all with a committed offset)",
    )
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the beginning")
    where.add_argument("--to-latest", action="store_true", help="to the end")
    where.add_argument("--to-offset", type=int, metavar="N", help="to this offset")
    where.add_argument("--shift-by", type=int, metavar="N", help="N further, or back if negative")
    where.add_argument(
        "--to-datetime", type=parse_time, metavar="TIME", help="to the first record since TIME"
    )
    reset.add_argument("--execute", action="store_true", help="do it; else it is only shown")
    return [
        (listing, "list_groups"),
        (describe, "describe_group"),
        (delete, "delete_group"),
        (reset, "reset_group"),
    ]


def _add_quotas(
    nouns: argparse._SubParsersAction[argparse.ArgumentParser],
) -> list[tuple[argparse.ArgumentParser, str]]:
    quotas = _command(
        nouns,
        "quotas",
        "list, set and remove client quotas",
        epilog="examples:\n"
        "  drayd admin quotas set --client-id loader producer_byte_rate=1048576\n"
        "  drayd admin quotas set --user alice --default client-id request_percentage=50\n"
        "  drayd admin quotas remove --client-id loader producer_byte_rate\n",
    )
    verbs = quotas.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = _command(verbs, "list", "list every limit")
    change = _command(verbs, "set", "set limits of a user, a client id, both, or an address")
    change.add_argument("limits", type=_limit, nargs="+", metavar="QUOTA=LIMIT")
    remove = _command(verbs, "remove", "remove limits")
    remove.add_argument("quotas", nargs="+", metavar="QUOTA")
    for command in (change, remove):
        for kind in ("user", "client-id", "ip"):
            command.add_argument(f"--{kind}", metavar="NAME", help=f"of this {kind}")
        command.add_argument(
            "--default",
            action="append",
            default=[],
            choices=("user", "client-id", "ip"),
            help="of all that have no limits of their own; may be repeated",
        )
    return [(listing, "list_quotas"), (change, "set_quotas"), (remove, "remove_quotas")]


def _limit(text: str) -> tuple[str, float]:
    key, value = _pair(text)
    try:
        return key, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f'must be QUOTA=NUMBER, not "{text}"') from None


def parse_time(text: str) -> int:
    """Milliseconds of a time in ISO 8601; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'must be a time such as 2026-03-01T12:00:00Z, not "{text}"'
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


RESOURCE_KINDS = ("topic", "broker", "group", "client-metrics")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'must be a number from 1, not "{text}"')
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f'must be KEY=VALUE, not "{text}"')
    return key, value


def _run_broker(arguments: argparse.Namespace) -> int:
    from drayd.config import ConfigError

    try:
        settings = load_config(arguments).settings
    except ConfigError as error:
        return fail(error, 2)

    from drayd import app, logs
    from drayd.datadir import DataDirError
    from drayd.sockets import ListenError

    logs.configure(settings.log_level, settings.log_format)
    try:
        return app.run(settings, arguments.role)
    except ConfigError as error:
        return fail(error, 2)
    except (DataDirError, ListenError) as error:
        return fail(error)


def _run_admin(arguments: argparse.Namespace) -> int:
    from drayd import cli_admin

    return cli_admin.run(arguments)


def _show_config(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from drayd.config import SETTINGS, ConfigError

    try:
        settings, sources = load_config(arguments)
    except ConfigError as error:
        return fail(error, 2)
    # Where the embedded default is in use, its address says more than an empty value.
    settings = replace(settings, metadata=settings.metadata_url, storage=settings.storage_url)
    rows = [
        (key, setting.show(getattr(settings, setting.attribute)), sources[key])
        for key, setting in SETTINGS.items()
    ]
    if arguments.json:
        import json

        print(json.dumps({k: {"value": v, "source": s} for k, v, s in rows}, indent=2))
        return 0
    key_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for key, value, source in rows:
        print(f"{key:<{key_width}}  {value or '-':<{value_width}}  {source}")
    return 0


def _show_version(arguments: argparse.Namespace) -> int:
    import platform
    from importlib.metadata import version

    print(f"drayd  {__version__}")
    print(f"python {platform.python_version()} ({platform.system()} {platform.machine()})")
    for name in ("kio", "uvloop", "obstore"):
        print(f"{name:<6} {version(name)}")
    return 0
