"""Takes out of answers what may differ, and says in words what else does."""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from uuid import UUID

from compat.oracle import allowed
from compat.oracle.player import Answer, Played

_REPLACED = re.compile(r"<.*>|\$.*")
_TODAY_MS = 1_750_000_000_000
_KEPT = (None, -1, 0, "")
_NAMES = (
    *("name", "topic", "topic_name", "group_id", "resource_name", "api_key"),
    *("partition_index", "index"),
)


def normalised(played: Played) -> list[dict[str, Any]]:
    """The answers as they are recorded: no machine, no run, no time can be told from them."""
    names = _texts(played.symbols)
    symbols: dict[str, dict[Any, str]] = {}
    return [{"step": each.step, "answer": _answer(each, names, symbols)} for each in played.answers]


def again(recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Recorded answers under the rules of today."""
    symbols: dict[str, dict[Any, str]] = {}
    return [
        {
            "step": each["step"],
            "answer": _answer(
                Answer(each["step"], each["step"].split()[1], each["answer"]), {}, symbols
            ),
        }
        for each in recorded
    ]


def differences(
    kafka: list[dict[str, Any]], dray: list[dict[str, Any]]
) -> Iterator[tuple[str, Any, Any]]:
    """(where, what Kafka has, what Dray has)."""
    for whole, ours in zip(kafka, dray, strict=True):
        theirs = _common(whole, ours)
        for path, expected, found in _differences(theirs["answer"], ours["answer"], ""):
            yield f"step {theirs['step']}: {path or '(answer)'}", expected, found


def _differences(kafka: Any, dray: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, Mapping) and isinstance(dray, Mapping):
        for key in [*kafka, *(key for key in dray if key not in kafka)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(kafka.get(key, "(absent)"), dray.get(key, "(absent)"), inner)
    elif isinstance(kafka, list) and isinstance(dray, list) and len(kafka) == len(dray):
        for i, (theirs, ours) in enumerate(zip(kafka, dray, strict=True)):
            yield from _differences(theirs, ours, f"{path}.{i}")
    elif kafka != dray or type(kafka) is not type(dray):
        yield path, kafka, dray


def _common(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Kafka's answer without the items that only it has, where Dray may have fewer."""
    api = theirs["step"].split()[1]
    answer = dict(theirs["answer"])
    for rule in allowed.RULES:
        mine = ours["answer"].get(rule.path)
        if rule.rule == allowed.FEWER and rule.api == api and mine and answer.get(rule.path):
            names = {_name(item) for item in mine}
            answer[rule.path] = [item for item in answer[rule.path] if _name(item) in names]
    return {**theirs, "answer": answer}


def _name(item: Mapping[str, Any]) -> Any:
    return next(item[key] for key in _NAMES if key in item)


def _texts(symbols: Mapping[str, Any]) -> dict[str, str]:
    """What stands for each text that a symbol had, the longest first; ids also as Kafka prints
    them."""
    found: dict[str, str] = {}
    for name, value in symbols.items():
        if isinstance(value, str) and len(value) >= 4:
            found.setdefault(value, f"${name}")
            if len(value) == 36 and value.count("-") == 4:
                found.setdefault(_base64(value), f"${name}")
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _base64(uuid: str) -> str:
    return urlsafe_b64encode(UUID(uuid).bytes).decode().rstrip("=")


def _answer(answer: Answer, names: dict[str, str], symbols: dict[str, dict[Any, str]]) -> Any:
    value = _named(answer.answer, names)
    rules = [rule for rule in allowed.RULES if rule.api in ("*", answer.api)]
    unordered = [rule for rule in rules if rule.rule in (allowed.UNORDERED, allowed.FEWER)]
    value = _sorted(value, "", unordered)
    return _ruled(value, "", rules, symbols)


def _named(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        for text, name in names.items():
            if text in value:
                value = value.replace(text, name)
        return value
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if isinstance(value, Mapping):
        return {key: _named(each, names) for key, each in value.items()}
    return value


def _sorted(value: Any, path: str, rules: list[allowed.Rule]) -> Any:
    if isinstance(value, list):
        items = [_sorted(each, f"{path}.*", rules) for each in value]
        if any(_pattern(rule.path).fullmatch(path) for rule in rules):
            items.sort(key=_sort_key)
        return items
    if isinstance(value, Mapping):
        return {key: _sorted(each, _join(path, key), rules) for key, each in value.items()}
    return value


def _sort_key(item: Any) -> str:
    """By what an item names; random values come last, so that they don't decide the order."""
    if not isinstance(item, Mapping):
        return json.dumps(item)
    names = [item[key] for key in _NAMES if key in item]
    rest = {key: value for key, value in item.items() if not key.endswith("_id")}
    return json.dumps([names, rest, item], sort_keys=True)


def _ruled(
    value: Any, path: str, rules: list[allowed.Rule], symbols: dict[str, dict[Any, str]]
) -> Any:
    for rule in rules:
        if rule.rule not in (allowed.UNORDERED, allowed.FEWER) and _pattern(rule.path).fullmatch(
            path
        ):
            return _replaced(value, path, rule, rules, symbols)
    return _inside(value, path, rules, symbols)


def _inside(
    value: Any, path: str, rules: list[allowed.Rule], symbols: dict[str, dict[Any, str]]
) -> Any:
    if isinstance(value, list):
        return [_ruled(each, f"{path}.*", rules, symbols) for each in value]
    if isinstance(value, Mapping):
        return {key: _ruled(each, _join(path, key), rules, symbols) for key, each in value.items()}
    return value


def _replaced(
    value: Any,
    path: str,
    rule: allowed.Rule,
    rules: list[allowed.Rule],
    symbols: dict[str, dict[Any, str]],
) -> Any:
    if rule.rule == allowed.IGNORED:
        return "<not compared>"
    if rule.rule == allowed.WHOLE:
        whole = [each for each in value if each != {"partial": True}] if value else value
        return _inside(whole, path, rules, symbols)
    is_first_id = value == 0 and path.endswith("producer_id")
    if (value in _KEPT and not is_first_id) or (
        isinstance(value, str) and _REPLACED.fullmatch(value)
    ):
        return value
    if rule.rule == allowed.COUNT:
        return "<positive>" if isinstance(value, int) and value > 0 else value
    if rule.rule == allowed.TIME:
        if isinstance(value, str):
            return re.sub(r"-?\d{13,}", _today, value)
        return "<now>" if isinstance(value, int) and value > _TODAY_MS else value
    kind = path.rpartition(".")[2]
    known = symbols.setdefault(kind, {})
    return known.setdefault(value, f"<{kind} {len(known) + 1}>")


def _today(found: re.Match[str]) -> str:
    return "<now>" if abs(int(found[0])) > _TODAY_MS else found[0]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


@cache
def _pattern(path: str) -> re.Pattern[str]:
    """`**.` is any number of steps, also none; `*` is an item of a list or one name."""
    parts = [re.escape(part) for part in path.split(".")]
    text = r"\.".join(parts).replace(r"\*\*\.", r"(?:[^.]+\.)*").replace(r"\*", r"[^.]+")
    return re.compile(text)
