"""`drayd admin groups` against a real broker, with offsets that real consumers would commit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from drayd.cli import main, parse_time
from drayd.cli_groups import Reset, new_offsets, parse_topics
from drayd.client import ClientError
from tests.wire.process import BrokerProcess, broker

TIMES_MS = [1_700_000_000_000 + number * 1_000 for number in range(10)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(
        tmp_path_factory.mktemp("groups") / "data", "group.initial.rebalance.delay.ms=0"
    ) as process:
        producer = Producer({"bootstrap.servers": bootstrap(process)})
        for time_ms in TIMES_MS:
            producer.produce("orders", b"x", partition=0, timestamp=time_ms)
        assert producer.flush(30) == 0
        yield process


def bootstrap(process: BrokerProcess) -> str:
    return f"{process.address[0]}:{process.address[1]}"


class Admin:
    def __init__(self, server: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap(server)
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main(["admin", "groups", *arguments, "--bootstrap", self._bootstrap]) == code
        captured = self._capsys.readouterr()
        return captured.err if code else captured.out


@pytest.fixture
def admin(server: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Admin:
    return Admin(server, capsys)


def commit(server: BrokerProcess, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap(server), "group.id": group})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def test_listing_and_lag(admin: Admin, server: BrokerProcess) -> None:
    commit(server, "lagging", 4)
    listed = [line.split() for line in admin("list").splitlines()]
    assert ["lagging", "classic", "Empty", "-"] in listed
    described = json.loads(admin("describe", "lagging", "--json"))
    assert (described["type"], described["state"]) == ("classic", "Empty")
    assert described["partitions"] == [
        {
            "topic": "orders",
            "partition": 0,
            "committed": 4,
            "end": 10,
            "lag": 6,
            "member": "-",
            "host": "-",
        }
    ]
    assert "lag" in admin("describe", "lagging")
    assert "There is no group" in admin("describe", "nobody", code=1)


@pytest.mark.parametrize(
    ("flags", "new"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-2"], 2),
        (["--shift-by", "-9"], 0),
        (["--to-datetime", "2023-11-14T22:13:23Z"], 3),
        (["--to-datetime", "2030-01-01"], 10),
    ],
)
def test_resetting(admin: Admin, server: BrokerProcess, flags: list[str], new: int) -> None:
    commit(server, "moved", 4)
    shown = json.loads(admin("reset", "moved", *flags, "--json"))
    row = {"topic": "orders", "partition": 0, "old": 4, "new": new}
    assert shown == {"executed": False, "offsets": [row]}
    assert json.loads(admin("describe", "moved", "--json"))["partitions"][0]["committed"] == 4
    assert "Done." in admin("reset", "moved", *flags, "--topic", "orders:0", "--execute")
    assert json.loads(admin("describe", "moved", "--json"))["partitions"][0]["committed"] == new


def test_a_group_with_members_is_left_alone(admin: Admin, server: BrokerProcess) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap(server),
            "group.id": "busy",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(30) is not None
    assert "while it has members" in admin("reset", "busy", "--to-earliest", code=1)
    assert "NON_EMPTY_GROUP" in admin("delete", "busy", code=1)
    described = json.loads(admin("describe", "busy", "--json"))
    assert [each["client"] for each in described["members"]] == ["reader"]
    assert described["partitions"][0]["member"] == described["members"][0]["member"]
    consumer.close()
    assert json.loads(admin("describe", "busy", "--json"))["state"] == "Empty"


def test_deleting(admin: Admin, server: BrokerProcess) -> None:
    commit(server, "old", 1)
    assert admin("delete", "old") == "Deleted old.\n"
    assert "GROUP_ID_NOT_FOUND" in admin("delete", "old", code=1)
    assert "old" not in admin("list").split()


def test_a_new_group_gets_offsets_of_a_topic(admin: Admin) -> None:
    out = admin("reset", "fresh", "--topic", "orders", "--to-latest", "--execute", "--json")
    assert json.loads(out)["offsets"] == [
        {"topic": "orders", "partition": 0, "old": "-", "new": 10}
    ]
    assert "no topic" in admin("reset", "fresh", "--topic", "absent", "--to-latest", code=1)


def test_what_cannot_be_meant() -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_time("yesterday")
    with pytest.raises(ClientError):
        parse_topics(["orders:a"])
    place = ("orders", 0)
    with pytest.raises(ClientError):
        new_offsets(
            Reset(shift=1),
            [place],
            committed={},
            earliest={place: 0},
            latest={place: 1},
            at_time={},
        )
