"""The layers of a broker's configuration, resolved. Pure: what is set comes in as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from drayd.configs.broker_keys import BROKER_KEYS, SYNONYMS, UNIT_MS, BrokerKey
from drayd.configs.keys import Key
from drayd.configs.topic_keys import TOPIC_KEYS
from drayd.configs.values import Source, Type

_UNKNOWN = BrokerKey("", Type.UNKNOWN, None, "", sensitive=True)
"""A name that nobody knows may be a plugin's password."""


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One line of DescribeConfigs."""

    name: str
    value: str | None
    type: Type
    source: Source
    synonyms: tuple[Synonym, ...]
    doc: str | None
    read_only: bool = False
    sensitive: bool = False


class BrokerView:
    """One broker's configuration at one moment."""

    def __init__(
        self, static: Mapping[str, str], for_all: Mapping[str, str], for_this: Mapping[str, str]
    ) -> None:
        self._for_all = for_all
        defaults = {
            key.name: key.default for key in BROKER_KEYS.values() if key.default is not None
        }
        self._layers: tuple[tuple[Source, Mapping[str, str]], ...] = (
            (Source.DYNAMIC_BROKER, for_this),
            (Source.DYNAMIC_DEFAULT_BROKER, for_all),
            (Source.STATIC_BROKER, static),
            (Source.DEFAULT, defaults),
        )

    def value(self, name: str) -> str | None:
        """The text that counts for a setting."""
        for _, layer in self._layers:
            if name in layer:
                return layer[name]
        return None

    def synonyms(self, name: str) -> list[Synonym]:
        """All that was or could be set for it, the strongest first."""
        names = SYNONYMS.get(name, (name,))
        key = BROKER_KEYS.get(name, _UNKNOWN)
        found = [
            Synonym(each, None if key.sensitive else layer[each], source)
            for source, layer in self._layers
            for each in names
            if each in layer
        ]
        # What is stronger under another name belongs to that name.
        while found and found[0].name != name:
            del found[0]
        return found

    def topic_default(self, key: Key) -> str:
        """The text of a topic configuration where the topic itself has none."""
        if not key.broker_key:
            return key.default
        for name in SYNONYMS.get(key.broker_key, (key.broker_key,)):
            text = self.value(name)
            if text is not None:
                return _in_ms(key, name, text)
        return key.default

    # -- shown -------------------------------------------------------------------------------

    def entries(self) -> Iterable[Entry]:
        """The whole configuration of this broker."""
        set_names = [name for _, layer in self._layers for name in layer]
        for name in dict.fromkeys([*BROKER_KEYS, *set_names]):
            key = BROKER_KEYS.get(name, _UNKNOWN)
            yield _entry(key, name, self.value(name), self.synonyms(name))

    def entries_for_all(self) -> Iterable[Entry]:
        """What was set for all brokers."""
        for name, text in self._for_all.items():
            key = BROKER_KEYS.get(name, _UNKNOWN)
            synonyms = self.synonyms(name)
            own = [one for one in synonyms if one.source is Source.DYNAMIC_DEFAULT_BROKER]
            yield _entry(key, name, text, own)

    def topic_entries(
        self, config: Mapping[str, str], *, as_stored: bool = False
    ) -> Iterable[Entry]:
        """A topic's configuration. `as_stored`: the texts as somebody sent them, which is how
        CreateTopics shows them."""
        for name, key in TOPIC_KEYS.items():
            own = config.get(name)
            if own is None and key.hidden:
                continue
            text = self.topic_default(key) if own is None else own
            value = text if as_stored else key.show(text)
            synonyms = self.synonyms(key.broker_key) if key.broker_key else []
            if own is not None:
                synonyms.insert(0, Synonym(name, value, Source.TOPIC))
            yield described(key, value, synonyms)


def described(key: Key, value: str, synonyms: list[Synonym]) -> Entry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Entry(key.name, value, key.type, source, tuple(synonyms), key.doc)


def _entry(key: BrokerKey, name: str, text: str | None, synonyms: list[Synonym]) -> Entry:
    if text is not None and key.key is not None:
        text = key.key.show(text)
    return Entry(
        name,
        None if key.sensitive else text,
        key.type,
        synonyms[0].source if synonyms else Source.DEFAULT,
        tuple(synonyms),
        key.doc or None,
        read_only=not key.dynamic,
        sensitive=key.sensitive,
    )


def _in_ms(key: Key, name: str, text: str) -> str:
    for unit, factor in UNIT_MS.items():
        if name.endswith(unit):
            return str(int(text) * factor)
    if key.name == "retention.ms" and int(text) < 0:
        return "-1"
    return text
