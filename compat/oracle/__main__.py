"""``python -m compat.oracle``: run, record, check or list scenarios."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, TypeVar

from compat import servers, toolchain
from compat.oracle import compare, golden, targets
from compat.oracle.player import NotPlayable, play
from compat.oracle.scenario import Scenario, Versions, WrongScenario, areas, load
from compat.servers import ServerFailed
from compat.wire import Address

Answers = list[dict[str, Any]]
Result = TypeVar("Result")

AT_A_TIME = 8
NOT_PLAYED = "0 preparing"


def main() -> int:
    """Run the command line."""
    options = _options()
    servers.exit_on_sigterm()
    commands = {"run": run, "record": _record, "check": _check, "list": _list}
    try:
        scenarios = [each for area in options.areas or areas() for each in load(area)]
        wanted = [each for each in scenarios if options.only in each.name]
        return commands[options.command](wanted)
    except (toolchain.Missing, ServerFailed, WrongScenario, NotPlayable, golden.Stale) as problem:
        print(problem, file=sys.stderr)
        return 2


def run(scenarios: list[Scenario]) -> int:
    """Both servers live."""
    with (
        servers.scratch() as folder,
        targets.kafka(folder) as kafka,
        targets.dray(folder) as dray,
    ):
        targets.settle(kafka.address)
        known = targets.versions(kafka.address)

        def both(scenario: Scenario, versions: Mapping[str, int]) -> tuple[Answers, Answers]:
            theirs = _played(scenario, versions, known, kafka.address)
            return theirs, _played(scenario, versions, known, dray.address)

        return _report(_side_by_side(scenarios, known, both))


def _check(scenarios: list[Scenario]) -> int:
    known = golden.versions()
    recorded = {area: golden.load(area) for area in {each.area for each in scenarios}}
    with servers.scratch() as folder, targets.dray(folder) as dray:

        def against(scenario: Scenario, versions: Mapping[str, int]) -> tuple[Answers, Answers]:
            theirs = compare.again(golden.answers(recorded[scenario.area], scenario, versions))
            return theirs, _played(scenario, versions, known, dray.address)

        return _report(_side_by_side(scenarios, known, against))


def _record(scenarios: list[Scenario]) -> int:
    with servers.scratch() as folder, targets.kafka(folder) as kafka:
        targets.settle(kafka.address)
        known = targets.versions(kafka.address)
        golden.save_versions(known)
        recorded: dict[str, dict[str, tuple[Scenario, golden.Runs]]] = {}
        whole = [each for area in sorted({each.area for each in scenarios}) for each in load(area)]

        def answers(scenario: Scenario, versions: Mapping[str, int]) -> Answers:
            return _played(scenario, versions, known, kafka.address)

        for scenario, versions, found in _side_by_side(whole, known, answers):
            area = recorded.setdefault(scenario.area, {})
            area.setdefault(scenario.name, (scenario, []))[1].append((dict(versions), found))
            if found and found[0]["step"] == NOT_PLAYED:
                raise NotPlayable(f"{scenario.area}: {scenario.name}: {found[0]['answer']}")
    for name, content in recorded.items():
        golden.save(name, content)
        print(f"{name}: {len(content)} scenarios recorded")
    return 0


def _side_by_side(
    scenarios: list[Scenario],
    known: Versions,
    play_one: Callable[[Scenario, Mapping[str, int]], Result],
) -> Iterator[tuple[Scenario, Mapping[str, int], Result]]:
    """Every run of every scenario; several are under way at a time, which changes nothing, since
    each has names of its own. Those that must be alone come last, one after the other."""
    all_runs = [(each, versions) for each in scenarios for versions in each.runs(known)]
    runs = [run for run in all_runs if not run[0].alone]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = pool.map(lambda each: play_one(*each), runs)
        for (scenario, versions), result in zip(runs, results, strict=True):
            yield scenario, versions, result
    for scenario, versions in all_runs:
        if scenario.alone:
            yield scenario, versions, play_one(scenario, versions)


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
        return [{"step": NOT_PLAYED, "answer": {"not playable": str(problem)}}]


def _report(
    results: Iterable[tuple[Scenario, Mapping[str, int], tuple[Answers, Answers]]],
) -> int:
    began = time.perf_counter()
    names = failed = runs = 0
    for scenario, group in groupby(results, key=lambda each: each[0]):
        lines: dict[str, list[Mapping[str, int]]] = {}
        for _, versions, (theirs, ours) in group:
            runs += 1
            for line in describe(theirs, ours):
                lines.setdefault(line, []).append(versions)
        names += 1
        failed += bool(lines)
        if lines:
            print(f"{scenario.area}: {scenario.name}")
        for line, where in lines.items():
            print(f"    {_shown_versions(where)} {line}", flush=True)
    print(
        f"{names} scenarios, {runs} runs, {failed} scenarios differ, "
        f"in {time.perf_counter() - began:.0f} s"
    )
    return 1 if failed else 0


def _shown_versions(runs: list[Mapping[str, int]]) -> str:
    """`[Fetch 4-12]`."""
    parts = []
    for api in runs[0]:
        found = sorted({run[api] for run in runs})
        ranges: list[list[int]] = []
        for version in found:
            if ranges and ranges[-1][-1] == version - 1:
                ranges[-1].append(version)
            else:
                ranges.append([version])
        shown = (f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges)
        parts.append(f"{api} {','.join(shown)}")
    return f"[{'; '.join(parts)}]"


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
