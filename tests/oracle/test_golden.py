"""Dray gives the recorded answers of Apache Kafka, scenario by scenario, at every version.

`python -m compat.oracle run AREA` compares both live; compat/oracle/README.md says more.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat.oracle import compare, golden, targets
from compat.oracle.__main__ import describe
from compat.oracle.player import play
from compat.oracle.scenario import Scenario, areas, load
from compat.wire import Address
from tests.wire.process import broker

# A scenario with timers can meet a machine that stands still for longer than one of them; an answer
# that is wrong is wrong every time.
PLAYS_WITH_TIMERS = 4

SCENARIOS = [scenario for area in areas() for scenario in load(area)]


@pytest.fixture(scope="module")
def dray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    folder = tmp_path_factory.mktemp("oracle")
    with broker(folder / "data", *targets.DRAY_SETTINGS) as process:
        yield Address(*process.address)
        assert process.running, "the broker has ended"
    assert "Traceback" not in (folder / "broker.log").read_text()


@pytest.mark.parametrize(
    "scenario", SCENARIOS, ids=[f"{each.area}: {each.name}" for each in SCENARIOS]
)
def test_answers_as_kafka_does(scenario: Scenario, dray: Address) -> None:
    known = golden.versions()
    recorded = golden.load(scenario.area)
    runs = list(scenario.runs(known))
    assert runs
    has_timers = any(step.kind == "wait" for step in scenario.steps)
    problems = []
    for versions in runs:
        expected = compare.again(golden.answers(recorded, scenario, versions))
        for _ in range(PLAYS_WITH_TIMERS if has_timers else 1):
            found = compare.normalised(play(scenario, versions, known, dray))
            differences = [f"{versions}: {line}" for line in describe(expected, found)]
            if not differences:
                break
        problems += differences
    assert not problems, "\n".join(problems)


def test_nothing_is_recorded_that_no_scenario_asks() -> None:
    stray = {path.stem for path in golden.FOLDER.glob("*.json")} - {*areas(), "versions"}
    assert not stray
    for area in areas():
        assert set(golden.load(area)) == {each.name for each in SCENARIOS if each.area == area}
