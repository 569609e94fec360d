"""Recorded answers of Apache Kafka: `golden/<area>.json`, and `golden/versions.json`, the versions
that Kafka and kio both know. Runs with the same answers are stored once."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compat.oracle.scenario import Scenario, Versions

FOLDER = Path(__file__).parent / "golden"

Runs = list[tuple[dict[str, int], list[dict[str, Any]]]]
"""The versions of each run, and its answers."""


class Stale(Exception):
    """No recorded answers, or answers to a scenario that has changed since."""


def versions() -> Versions:
    """The recorded table of versions."""
    content = json.loads((FOLDER / "versions.json").read_text(encoding="utf-8"))
    return {name: (low, high) for name, (low, high) in content.items()}


def save_versions(table: Versions) -> None:
    """Write the table of versions."""
    rows = [f'"{name}": [{low}, {high}]' for name, (low, high) in sorted(table.items())]
    (FOLDER / "versions.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def load(area: str) -> dict[str, Any]:
    """What was recorded for an area, by scenario."""
    path = FOLDER / f"{area}.json"
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def answers(
    recorded: Mapping[str, Any], scenario: Scenario, run: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Kafka's answers in one run of a scenario."""
    about = f"{scenario.area}: {scenario.name}"
    if scenario.name not in recorded:
        raise Stale(f"{about}: not recorded; python -m compat.oracle record {scenario.area}")
    entry = recorded[scenario.name]
    if entry["digest"] != scenario.digest:
        raise Stale(f"{about}: changed; python -m compat.oracle record {scenario.area}")
    for group in entry["runs"]:
        if dict(run) in group["versions"]:
            found: list[dict[str, Any]] = group["answers"]
            return found
    raise Stale(f"{about}: no answers for {dict(run)}")


def save(area: str, recorded: Mapping[str, tuple[Scenario, Runs]]) -> None:
    """Write an area: one line an answer, so that changes can be read."""
    entries = []
    for name, (scenario, runs) in recorded.items():
        groups: list[tuple[list[dict[str, int]], list[dict[str, Any]]]] = []
        for run, found in runs:
            for group in groups:
                if group[1] == found:
                    group[0].append(run)
                    break
            else:
                groups.append(([run], found))
        shown = ",\n".join(
            f'  {{"versions": {json.dumps(group_runs)},\n   "answers": [\n    '
            + ",\n    ".join(json.dumps(each, ensure_ascii=False) for each in found)
            + "]}"
            for group_runs, found in groups
        )
        entries.append(
            f' {json.dumps(name)}: {{"digest": "{scenario.digest}", "runs": [\n{shown}]}}'
        )
    path = FOLDER / f"{area}.json"
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")
