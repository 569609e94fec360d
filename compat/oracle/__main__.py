"""``python -m compat.oracle``: run, record, check or list scenarios."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from compat import servers, toolchain
from compat.oracle import compare, golden, targets
from compat.oracle.player import NotPlayable, play
from compat.oracle.scenario import Scenario, Versions, WrongScenario, areas, load
from compat.servers import ServerFailed
from compat.wire import Address

Answers = list[dict[str, Any]]


def main() -> int:
    """Run the command line."""
    options = _options()
    servers.exit_on_sigterm()
    commands = {"run": run, "record": _record, "check": _check, "list": _list}
    try:
        scenarios = [each for area in options.areas or areas() for each in load(area)]
        wanted = [each for each in scenarios if options.only in each.name]
        return commands[options.command](wanted)
    except (toolchain.Missing, ServerFailed, WrongScenario, NotPlayable) as problem:
        print(problem, file=sys.stderr)
        return 2


def run(scenarios: list[Scenario]) -> int:
    """Both servers live."""
    with (
        servers.scratch() as folder,
        targets.kafka(folder) as kafka,
        targets.dray(folder) as dray,
    ):
        known = targets.versions(kafka.address)
        return _report(
            (scenario, versions, theirs, _played(scenario, versions, known, dray.address))
            for scenario in scenarios
            for versions in scenario.runs(known)
            for theirs in [_played(scenario, versions, known, kafka.address)]
        )


def _check(scenarios: list[Scenario]) -> int:
    known = golden.versions()
    recorded = {area: golden.load(area) for area in {each.area for each in scenarios}}
    try:
        with servers.scratch() as folder, targets.dray(folder) as dray:
            return _report(
                (
                    scenario,
                    versions,
                    compare.again(golden.answers(recorded[scenario.area], scenario, versions)),
                    _played(scenario, versions, known, dray.address),
                )
                for scenario in scenarios
                for versions in scenario.runs(known)
            )
    except golden.Stale as stale:
        print(stale, file=sys.stderr)
        return 2


def _record(scenarios: list[Scenario]) -> int:
    with servers.scratch() as folder, targets.kafka(folder) as kafka:
        known = targets.versions(kafka.address)
        golden.save_versions(known)
        for area in sorted({each.area for each in scenarios}):
            recorded: dict[str, tuple[Scenario, golden.Runs]] = {}
            for scenario in load(area):
                recorded[scenario.name] = (
                    scenario,
                    [
                        (versions, _played(scenario, versions, known, kafka.address))
                        for versions in scenario.runs(known)
                    ],
                )
            golden.save(area, recorded)
            print(f"{area}: {len(recorded)} scenarios recorded")
    return 0


def _list(scenarios: list[Scenario]) -> int:
    known = golden.versions()
    runs = Counter[str]()
    for scenario in scenarios:
        runs[scenario.area] += sum(1 for _ in scenario.runs(known))
    count = Counter(scenario.area for scenario in scenarios)
    for area in sorted(count):
        print(f"{area:32}{count[area]:5} scenarios{runs[area]:7} runs")
        for scenario in scenarios:
            if scenario.area == area:
                print(f"    {scenario.name}")
    print(f"{'':32}{len(scenarios):5} scenarios{runs.total():7} runs")
    return 0


def _played(
    scenario: Scenario, versions: Mapping[str, int], known: Versions, to: Address
) -> Answers:
    try:
        return compare.normalised(play(scenario, versions, known, to))
    except NotPlayable as problem:
        return [{"step": "0 -", "answer": {"not playable": str(problem)}}]


def _report(
    results: Iterable[tuple[Scenario, Mapping[str, int], Answers, Answers]],
) -> int:
    began = time.perf_counter()
    different: dict[tuple[str, str], dict[str, list[str]]] = {}
    names: set[tuple[str, str]] = set()
    runs = 0
    for scenario, versions, theirs, ours in results:
        runs += 1
        name = (scenario.area, scenario.name)
        names.add(name)
        label = ", ".join(f"{api} {version}" for api, version in versions.items())
        for line in describe(theirs, ours):
            different.setdefault(name, {}).setdefault(line, []).append(label)
    for (area, title), lines in different.items():
        print(f"{area}: {title}")
        for line, where in lines.items():
            print(f"    [{'; '.join(where)}]\n    {line}")
    print(
        f"{len(names)} scenarios, {runs} runs, {len(different)} scenarios differ, "
        f"in {time.perf_counter() - began:.0f} s"
    )
    return 1 if different else 0


def describe(theirs: Answers, ours: Answers) -> list[str]:
    """The differences of a run, a line each."""
    if [each["step"] for each in theirs] != [each["step"] for each in ours]:
        return [f"Kafka {_shown(theirs)}\n      Dray  {_shown(ours)}"]
    return [
        f"{where}\n      Kafka {_shown(expected)}\n      Dray  {_shown(found)}"
        for where, expected, found in compare.differences(theirs, ours)
    ]


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compat.oracle",
        description="The same raw requests to Apache Kafka and to Dray; answers compared.",
    )
    parser.add_argument(
        "command",
        choices=("run", "record", "check", "list"),
        help="run: both live; record: write Kafka's answers; check: Dray against recorded ones",
    )
    parser.add_argument("areas", nargs="*", help="names of files in scenarios/; none is all")
    parser.add_argument("--only", default="", help="only scenarios whose name has this text")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
