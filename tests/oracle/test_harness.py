"""The oracle itself: what it sends, what it takes for the same, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat.oracle import batches, codec, compare, golden, scenario, schema
from compat.oracle.player import Answer, Played
from compat.oracle.scenario import Scenario, WrongScenario


def normalised(api: str, answer: dict[str, Any], **symbols: Any) -> Any:
    (found,) = compare.normalised(Played([Answer(f"1 {api}", api, answer)], symbols))
    return found["answer"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_come_back_as_they_were_written(compression: str) -> None:
    data = batches.encode(
        {
            "batch": {
                "compression": compression,
                "producer_id": 7,
                "base_sequence": 3,
                "records": ["a", {"key": "k", "timestamp": 1_700_000_000_009, "headers": {"h": 1}}],
            }
        }
    )
    (found,) = batches.decode(data)
    assert found["compression"] == compression and found["crc_ok"]
    assert (found["producer_id"], found["base_sequence"]) == (7, 3)
    assert found["max_timestamp"] == 1_700_000_000_009
    assert [each["value"] for each in found["records"]] == ["a", None]
    assert found["records"][1]["headers"] == [["h", "1"]]


def test_batches_that_are_wrong_on_purpose() -> None:
    (found,) = batches.decode(batches.encode({"batch": {"records": ["a"], "corrupt": "crc"}}))
    assert not found["crc_ok"]
    cut = batches.encode({"batch": {"records": ["a"], "cut": 1}})
    assert batches.decode(cut) == [{"partial": True}]
    with pytest.raises(ValueError, match="recrds"):
        batches.encode({"batch": {"recrds": ["a"]}})


@pytest.mark.parametrize("api", sorted(schema.apis()))
def test_every_request_can_be_written_in_every_version(api: str) -> None:
    key, _, versions = schema.apis()[api]
    for version in versions:
        message = schema.request(key, version)
        empty = codec.decode(message.body, codec.encode(message.body, {}), 0)
        assert codec.decode(message.body, codec.encode(message.body, empty), 0) == empty


def test_names_ids_and_ports_are_taken_out() -> None:
    answer = {
        "brokers": [{"port": 4711}],
        "topics": [{"name": "t-123456", "topic_id": "0f" * 16, "error_message": "no t-123456"}],
    }
    assert normalised("Metadata", answer, topic="t-123456") == {
        "brokers": [{"port": "<port 1>"}],
        "topics": [
            {"name": "$topic", "topic_id": "<topic_id 1>", "error_message": "no $topic"},
        ],
    }


def test_order_counts_unless_it_is_allowed_not_to() -> None:
    items = [{"name": "b"}, {"name": "a"}]
    assert normalised("Metadata", {"topics": items})["topics"] == [{"name": "a"}, {"name": "b"}]
    assert normalised("SaslHandshake", {"topics": items})["topics"] == items


def test_differences_are_named() -> None:
    theirs = [{"step": "1 Metadata", "answer": {"topics": [{"error_code": "none"}], "x": 1}}]
    ours = [{"step": "1 Metadata", "answer": {"topics": [{"error_code": "other"}], "x": True}}]
    assert list(compare.differences(theirs, theirs)) == []
    assert list(compare.differences(theirs, ours)) == [
        ("step 1 Metadata: topics.0.error_code", "none", "other"),
        ("step 1 Metadata: x", 1, True),
    ]


def test_dray_may_offer_fewer_apis_but_no_others() -> None:
    def offers(*ranges: tuple[int, int]) -> list[dict[str, Any]]:
        keys = [{"api_key": key, "max_version": high} for key, high in ranges]
        return [{"step": "1 ApiVersions", "answer": {"api_keys": keys}}]

    assert not list(compare.differences(offers((0, 3), (1, 4)), offers((1, 4))))
    assert list(compare.differences(offers((0, 3), (1, 4)), offers((1, 5))))
    assert list(compare.differences(offers((0, 3)), offers((0, 3), (9, 1))))


def one(steps: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setattr(scenario, "FOLDER", folder)
    (folder / "area.yaml").write_text(f"scenarios:\n  - name: it\n    steps: {steps}\n")
    (found,) = scenario.load("area")
    return found


def test_a_changed_scenario_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = one("[{Metadata: {topics: []}}]", tmp_path, monkeypatch)
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    answers = [{"step": "1 Metadata", "answer": {}}]
    golden.save("area", {"it": (before, [({"Metadata": 1}, answers)])})
    assert golden.answers(golden.load("area"), before, {"Metadata": 1}) == answers
    with pytest.raises(golden.Stale, match="no answers"):
        golden.answers(golden.load("area"), before, {"Metadata": 2})
    after = one("[{Metadata: {topics: null}}]", tmp_path, monkeypatch)
    with pytest.raises(golden.Stale, match="changed"):
        golden.answers(golden.load("area"), after, {"Metadata": 1})


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("[{Metadata: {topcis: []}}]", "no field topcis"),
        ("[{Metadata: {topics: [{nmae: x}]}}]", "no field topics.nmae"),
        ("[{Metdata: {}}]", "named Metdata"),
        ("[{Metadata: {}, Fetch: {}}]", "one API"),
        ("[{Metadata: {}, partitions: 2}]", "no option"),
    ],
)
def test_misspelt_scenarios_are_refused(
    steps: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WrongScenario, match=said):
        one(steps, tmp_path, monkeypatch)
