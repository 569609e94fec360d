"""Where settings come from: defaults, one YAML file, `DRAY_*` variables, flags.

Later sources win: default < file < environment < flag. Each value remembers its source, for
`drayd config` and for error messages. The first thing that is wrong raises ConfigError with one
sentence that names the key, what is wrong with it and, for an unknown key, the nearest one.

YAML may be flat (`wal.flush.linger_ms: 5`), nested, or both at once. It is read as nodes, not
as values, so that errors have line numbers, a key written twice is found, and each kind parses
the text that the person wrote.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from drayd.config import SETTINGS, ConfigError, Setting, Settings, check

CONFIG_VARIABLE = "DRAY_CONFIG"

# Kubernetes puts the address of every service into the environment of each pod, under the
# service's name: a service called "dray" gives DRAY_PORT, DRAY_SERVICE_HOST and so on.
_SERVICE_LINK = re.compile(
    r"DRAY_(?:[A-Z0-9_]+_)?(?:SERVICE_(?:HOST|PORT)(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)\w*)?)"
)

_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS.values()}


class Given(NamedTuple):
    """One value that somebody gave, still as text."""

    key: str
    text: str
    source: str


class Config(NamedTuple):
    """The settings, and for each key where its value came from."""

    settings: Settings
    sources: Mapping[str, str]


def load(
    *,
    config_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Iterable[Given] = (),
) -> Config:
    """Put all sources together. `environ` is os.environ, or what a test gives instead."""
    environ = environ or {}
    if config_file is None and environ.get(CONFIG_VARIABLE):
        config_file = Path(environ[CONFIG_VARIABLE])

    given: list[Given] = []
    if config_file is not None:
        given.extend(_from_file(config_file))
    given.extend(_from_environment(environ))
    given.extend(flags)

    values: dict[str, object] = {}
    sources = dict.fromkeys(SETTINGS, "default")
    for one in given:
        setting = _find(one)
        values[setting.attribute] = _parse(setting, one)
        sources[setting.key] = one.source
    settings = Settings(**values)  # type: ignore[arg-type]  # each was parsed by its field's kind
    check(settings)
    return Config(settings, sources)


def split_assignment(text: str) -> Given:
    """The argument of `--set`: key=value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f'--set needs key=value, such as --set log.level=debug, not "{text}".')
    return Given(key.strip(), value, "--set")


def nearest(word: str, possible: Iterable[str]) -> str:
    """The most similar of `possible`, however far it is."""
    wanted = re.sub(r"[-_.]+", ".", word).lower()
    by_form = {re.sub(r"[-_.]+", ".", one).lower(): one for one in possible}
    return by_form[difflib.get_close_matches(wanted, by_form, n=1, cutoff=0.0)[0]]


def _find(given: Given) -> Setting:
    setting = SETTINGS.get(given.key)
    if setting is None:
        raise ConfigError(
            f'Unknown setting "{given.key}" ({given.source}); '
            f"the nearest one is {nearest(given.key, SETTINGS)}."
        )
    return setting


def _parse(setting: Setting, given: Given) -> object:
    try:
        return setting.kind.parse(given.text)
    except ValueError as error:
        raise ConfigError(f'{setting.key} ({given.source}) {error}, not "{given.text}".') from None


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for variable in sorted(environ):
        if not variable.startswith("DRAY_") or variable == CONFIG_VARIABLE:
            continue
        setting = _BY_VARIABLE.get(variable)
        if setting is not None:
            yield Given(setting.key, environ[variable], variable)
        elif not _SERVICE_LINK.fullmatch(variable):
            raise ConfigError(
                f"Unknown setting in the environment variable {variable}; "
                f"the nearest one is {nearest(variable, _BY_VARIABLE)}."
            )


def _from_file(path: Path) -> list[Given]:
    # Only here, because most starts have no file and the import costs 20 ms.
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Can't read the configuration {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The configuration {path} is not UTF-8 text.") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line} is not YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"The configuration {path} is not YAML: {reason}.") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f'{path} must hold settings as "key: value" lines.')

    found: dict[str, Given] = {}

    def walk(node: yaml.MappingNode, prefix: str, parents: tuple[yaml.Node, ...]) -> None:
        for key_node, value_node in node.value:
            source = f"{path}:{key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"A setting's name must be plain text ({source}).")
            key = prefix + key_node.value
            if isinstance(value_node, yaml.MappingNode):
                if value_node in parents:
                    raise ConfigError(f'"{key}" ({source}) contains itself.')
                walk(value_node, key + ".", (*parents, value_node))
            elif isinstance(value_node, yaml.SequenceNode):
                raise ConfigError(f"{key} ({source}) must be a single value, not a list.")
            elif key in found:
                raise ConfigError(f"{key} is set twice: {found[key].source} and {source}.")
            else:
                is_null = value_node.tag == "tag:yaml.org,2002:null"
                found[key] = Given(key, "" if is_null else value_node.value, source)

    walk(root, "", (root,))
    return list(found.values())
