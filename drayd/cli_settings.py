"""The command line's way to the configuration: the flags that give settings, and errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drayd.config_sources import Config

_FLAGS = (
    ("--data-dir", "data.dir", "DIR", "keep everything in this folder (default: ./dray-data)"),
    ("--listen", "listen", "HOST:PORT", "where Kafka clients connect (default: localhost:9092)"),
    (
        "--advertise",
        "advertise",
        "HOST:PORT",
        "the address that clients are told to use, if it isn't the one of --listen",
    ),
    (
        "--http-listen",
        "http.listen",
        "HOST:PORT",
        "where /metrics, /healthz and /readyz are (default: localhost:8092; '' for none)",
    ),
    ("--metadata", "metadata", "URL", "metadata store (default: SQLite in the data folder)"),
    ("--storage", "storage", "URL", "object store (default: a directory in the data folder)"),
    ("--broker-id", "broker.id", "N", "this broker's number (default: 0)"),
    ("--zone", "zone", "Z", "the availability zone that this broker is in"),
)


class _Give(argparse.Action):
    """Gathers (key, text, source) of all setting flags in the order they were written."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        key = None if self.const is None else str(self.const)
        namespace.given = [*namespace.given, (key, str(values), option_string)]


def fail(sentence: object, code: int = 1) -> int:
    """Say what went wrong, and give the exit code."""
    print(f"drayd: {sentence}", file=sys.stderr)
    return code


def add_setting_flags(parser: argparse.ArgumentParser, only: Sequence[str] = ()) -> None:
    """The flags that give settings; `only` keeps those named."""
    group = parser.add_argument_group("settings")
    parser.set_defaults(given=[])
    for flag, key, metavar, text in _FLAGS:
        if not only or flag in only:
            group.add_argument(flag, action=_Give, const=key, metavar=metavar, help=text)
    group.add_argument("--config", type=Path, metavar="FILE", help="read settings from this file")
    group.add_argument(
        "--set",
        action=_Give,
        metavar="KEY=VALUE",
        help="set any setting by its key; may be repeated",
    )


def load_config(arguments: argparse.Namespace) -> Config:
    """The configuration that the flags, the environment and the file give."""
    from drayd.config_sources import Given, load, split_assignment

    flags = [
        split_assignment(text) if key is None else Given(key, text, source)
        for key, text, source in arguments.given
    ]
    return load(config_file=arguments.config, environ=os.environ, flags=flags)
