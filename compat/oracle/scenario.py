"""Scenario files: read, checked, and multiplied by the versions that they name."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from compat.oracle import schema

FOLDER = Path(__file__).parent / "scenarios"
OPTIONS = frozenset({"on", "pending", "save", "until", "version", "keep", "client_id", "unseen"})
TOPIC_OPTIONS = frozenset({"partitions", "configs", "batches"})

Versions = Mapping[str, tuple[int, int]]
"""The lowest and highest version of each API that Kafka and kio both know."""


class WrongScenario(Exception):
    """A scenario file that can't be played; the message says where and why."""


class Step(NamedTuple):
    """`kind` is an API's name, or `wait`, `answer`, `topic`, `close`."""

    kind: str
    body: Any
    options: Mapping[str, Any]


class Scenario(NamedTuple):
    """Steps, and for each API whose versions are tried the versions as the file has them."""

    area: str
    name: str
    versions: Mapping[str, Any]
    steps: tuple[Step, ...]
    digest: str
    alone: bool = False
    """Changes what every scenario sees: nothing else may be under way."""

    def runs(self, known: Versions) -> Iterator[dict[str, int]]:
        """The versions of each run; other APIs are sent at their newest."""
        names = list(self.versions)
        choices = [_choose(self, name, self.versions[name], known) for name in names]
        for chosen in product(*choices):
            yield dict(zip(names, chosen, strict=True))


def areas() -> list[str]:
    """The areas that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(area: str) -> list[Scenario]:
    """The scenarios of an area, in the file's order."""
    path = FOLDER / f"{area}.yaml"
    if not path.exists():
        raise WrongScenario(f"there is no area {area}: {path.name} does not exist")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    found: list[Scenario] = []
    for item in content["scenarios"]:
        scenario = _scenario(area, item)._replace(alone=content.get("alone", False))
        if any(scenario.name == other.name for other in found):
            raise WrongScenario(f"{area}: two scenarios are named {scenario.name!r}")
        found.append(scenario)
    return found


def _scenario(area: str, item: Mapping[str, Any]) -> Scenario:
    where = f"{area}: {item.get('name', item)}"
    if not {"name", "versions", "steps"}.issuperset(item):
        raise WrongScenario(f"{where}: only name, versions and steps are known")
    steps = tuple(_step(where, each) for each in item["steps"])
    asked = [each.kind for each in steps if each.kind in schema.apis()]
    versions = item.get("versions", {asked[0]: "all"} if asked else {})
    unknown = set(versions) - set(schema.apis())
    if unknown:
        raise WrongScenario(f"{where}: no API is named {sorted(unknown)}")
    digest = hashlib.sha256(json.dumps([versions, item["steps"]]).encode()).hexdigest()[:16]
    return Scenario(area, item["name"], versions, steps, digest)


def _step(where: str, item: Mapping[Any, Any]) -> Step:
    # YAML 1.1 reads a bare `on` as true.
    item = {"on" if key is True else key: value for key, value in item.items()}
    kinds = [key for key in item if key not in OPTIONS | TOPIC_OPTIONS]
    if len(kinds) != 1:
        raise WrongScenario(f"{where}: a step is one API with options, not {dict(item)}")
    kind = kinds[0]
    options = {key: value for key, value in item.items() if key != kind}
    if kind in schema.apis():
        if not OPTIONS.issuperset(options):
            raise WrongScenario(f"{where}: {kind} has no option {sorted(set(options) - OPTIONS)}")
        _check_fields(where, kind, item[kind] or {}, "")
    elif kind not in ("wait", "answer", "topic", "close"):
        raise WrongScenario(f"{where}: no API and no step is named {kind}")
    return Step(kind, item[kind], options)


def _check_fields(where: str, api: str, value: Any, prefix: str) -> None:
    """A misspelt field would silently be the default: refuse it."""
    known = schema.all_fields(schema.apis()[api].key)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            path = prefix + str(name)
            if path in known:
                _check_fields(where, api, inner, path + ".")
            elif not prefix or any(each.startswith(prefix) for each in known):
                raise WrongScenario(f"{where}: {api} has no field {path}")
    elif isinstance(value, list):
        for inner in value:
            _check_fields(where, api, inner, prefix)


def _choose(scenario: Scenario, api: str, wanted: Any, known: Versions) -> list[int]:
    low, high = known[api]
    if wanted == "all":
        return list(range(low, high + 1))
    if wanted == "newest":
        return [high]
    if isinstance(wanted, int):
        wanted = [wanted]
    if isinstance(wanted, str) and "-" in wanted:
        first, _, last = wanted.partition("-")
        wanted = list(range(int(first or low), int(last or high) + 1))
    if not isinstance(wanted, list) or not all(low <= each <= high for each in wanted):
        raise WrongScenario(
            f"{scenario.area}: {scenario.name}: {wanted} are not versions of {api}, {low}-{high}"
        )
    return wanted
