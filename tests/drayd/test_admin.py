"""`drayd admin` against a real broker, each in its own process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from drayd.cli import main


class Broker(NamedTuple):
    """A running `drayd start`."""

    bootstrap: str
    data_dir: Path


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data_dir = tmp_path_factory.mktemp("data")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "drayd", "start", "--data-dir", str(data_dir)),
            *("--listen", "127.0.0.1:0", "--http-listen", ""),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                found = re.search(r"Kafka clients +(\S+)", line)
                if found:
                    break
            else:
                raise AssertionError("drayd ended before it was ready")
            yield Broker(found[1], data_dir)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            if process.poll() is None:
                process.kill()


class Admin:
    """Runs `drayd admin` and gives what it printed."""

    def __init__(self, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = broker.bootstrap
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main(["admin", *arguments, "--bootstrap", self._bootstrap]) == code
        captured = self._capsys.readouterr()
        return captured.err if code else captured.out


@pytest.fixture
def admin(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Admin:
    return Admin(broker, capsys)


def test_the_life_of_a_topic(admin: Admin) -> None:
    out = admin("topics", "create", "life", "--partitions", "3")
    assert out == "Created life with 3 partitions.\n"
    assert "life" in admin("topics", "list").splitlines()

    text = admin("topics", "describe", "life").splitlines()
    assert text[0] == "topic       life"
    assert text[2] == "partitions  3"
    assert text[4].split() == ["partition", "leader", "start", "offset", "end", "offset", "bytes"]
    assert [line.split()[0] for line in text[5:]] == ["0", "1", "2"]

    assert admin("topics", "add-partitions", "life", "5") == "life has 5 partitions.\n"
    out = admin("topics", "delete-records", "life", "4")
    assert out == "life/4 starts at offset 0.\n"
    out = admin("topics", "delete-records", "life", "0", "--before", "9", code=1)
    assert out.endswith("(OFFSET_OUT_OF_RANGE).\n")

    assert admin("topics", "delete", "life") == "Deleted life.\n"
    assert "life" not in admin("topics", "list").splitlines()


def test_json(admin: Admin) -> None:
    made = json.loads(admin("topics", "create", "as-json", "--partitions", "2", "--json"))
    assert (made["name"], made["partitions"]) == ("as-json", 2)
    described = json.loads(admin("topics", "describe", "as-json", "--json"))
    assert described["id"] == made["id"]
    assert described["partitions"] == [
        {"partition": number, "leader": 0, "start_offset": 0, "end_offset": 0, "bytes": 0}
        for number in (0, 1)
    ]
    listed = json.loads(admin("topics", "list", "--json"))
    assert {"name": "as-json", "partitions": 2} in listed
    assert json.loads(admin("topics", "delete", "as-json", "--json")) == {"deleted": "as-json"}


def test_defaults_and_topic_configs(admin: Admin) -> None:
    out = admin("topics", "create", "configured", "--config", "retention.ms=1000")
    assert out == "Created configured with 1 partition.\n"


def test_configurations(admin: Admin) -> None:
    admin("topics", "create", "altered")
    out = admin("topics", "alter", "altered", "--set", "retention.ms=1000", "--set", "flush.ms=5")
    assert out == "Altered retention.ms, flush.ms of topic altered.\n"
    rows = json.loads(admin("configs", "describe", "topic", "altered", "--json"))
    assert {"key": "retention.ms", "value": "1000", "source": "topic"} in rows
    assert len(json.loads(admin("configs", "describe", "topic", "altered", "--json", "--all"))) > 30
    admin("configs", "alter", "topic", "altered", "--unset", "retention.ms")
    assert "retention.ms" not in admin("configs", "describe", "topic", "altered")

    out = admin("configs", "alter", "broker", "--set", "log.segment.bytes=2000000")
    assert out == "Altered log.segment.bytes of all brokers.\n"
    lines = admin("configs", "describe", "broker", "0").splitlines()
    assert ["log.segment.bytes", "2000000", "all", "brokers"] in [line.split() for line in lines]
    admin("configs", "alter", "broker", "--unset", "log.segment.bytes")

    sentence = admin("configs", "alter", "topic", "altered", "--set", "flush.ms=x", code=1)
    assert sentence.endswith(" Not a number of type LONG (INVALID_CONFIG).\n")
    assert "Nothing to do" in admin("configs", "alter", "topic", "altered", code=1)


def test_the_cluster(admin: Admin, broker: Broker) -> None:
    text = admin("cluster").splitlines()
    assert re.fullmatch(r"cluster  \S+", text[0])
    host, port = broker.bootstrap.split(":")
    assert text[3].split() == ["0", host, port, "-"]


@pytest.mark.parametrize(
    ("arguments", "code_name"),
    [
        (("create", "taken"), "TOPIC_ALREADY_EXISTS"),
        (("create", "no/slashes"), "INVALID_TOPIC_EXCEPTION"),
        (("create", "odd", "--config", "no.such.config=1"), "INVALID_CONFIG"),
        (("describe", "absent"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("add-partitions", "taken", "1"), "INVALID_PARTITIONS"),
        (("delete", "absent"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_refusals_are_one_sentence(
    admin: Admin, arguments: tuple[str, ...], code_name: str
) -> None:
    if arguments[1] == "taken" and "taken" not in admin("topics", "list").splitlines():
        admin("topics", "create", "taken")
    sentence = admin("topics", *arguments, code=1)
    assert sentence.startswith("drayd: Can't ")
    assert sentence.endswith(f" ({code_name}).\n")
    assert sentence.count("\n") == 1


def test_describing_creates_nothing(admin: Admin) -> None:
    admin("topics", "describe", "never-made", code=1)
    assert "never-made" not in admin("topics", "list").splitlines()


def test_the_index_is_read_beside_the_running_broker(
    admin: Admin, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    admin("topics", "create", "indexed")
    where = ["--data-dir", str(broker.data_dir)]
    assert main(["admin", "index", "indexed", "0", *where]) == 0
    assert capsys.readouterr().out.startswith("indexed/0: stream ")
    for arguments in (["absent", "0"], ["indexed", "7"]):
        assert main(["admin", "index", *arguments, *where]) == 1
        assert "There is no such topic or partition" in capsys.readouterr().err


def test_quotas_are_set_listed_and_removed(admin: Admin) -> None:
    assert admin("quotas", "list") == ""
    loader = ("--client-id", "loader")
    admin("quotas", "set", *loader, "producer_byte_rate=1048576", "request_percentage=12.5")
    admin("quotas", "set", "--user", "alice", "--default", "client-id", "consumer_byte_rate=7")
    lines = [line.split() for line in admin("quotas", "list").splitlines()]
    assert lines == [
        ["entity", "quota", "limit"],
        ["client-id", "<default>,", "user", "alice", "consumer_byte_rate", "7.0"],
        ["client-id", "loader", "producer_byte_rate", "1048576.0"],
        ["client-id", "loader", "request_percentage", "12.5"],
    ]
    admin("quotas", "remove", *loader, "producer_byte_rate", "request_percentage")
    admin("quotas", "remove", "--user", "alice", "--default", "client-id", "consumer_byte_rate")
    assert admin("quotas", "list") == ""


def test_quotas_that_make_no_sense(admin: Admin) -> None:
    refused = admin("quotas", "set", "--client-id", "c", "no_such_rate=5", code=1)
    assert "Invalid configuration key no_such_rate" in refused
    assert "Whose limits?" in admin("quotas", "set", "producer_byte_rate=5", code=2)
    both = ("--user", "u", "--default", "user")
    assert "exclude" in admin("quotas", "set", *both, "producer_byte_rate=5", code=2)
