"""The configurations of a broker: the defaults of topics, which can be changed while it runs, and
Dray's own settings, most of which can't.

The order of sources is Kafka's: what was set for this broker, what was set for all brokers, what it
was started with, the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drayd.config import SETTINGS, Setting, Settings
from drayd.configs.checks import at_least
from drayd.configs.kafka_names import FIXED_NAMES
from drayd.configs.keys import Key
from drayd.configs.topic_keys import LONG_MAX, TOPIC_KEYS
from drayd.configs.values import BadValue, Type, Value, show
from drayd.kinds import INT32_MAX, Boolean, Integer, Names, Size


@dataclass(frozen=True, slots=True)
class BrokerKey:
    name: str
    type: Type
    default: str | None
    doc: str
    key: Key | None = None
    """How a change of it is checked; None: it can't be changed while the broker runs."""
    sensitive: bool = False

    @property
    def dynamic(self) -> bool:
        return self.key is not None


SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}
"""Settings that are one and the same thing in different units, the strongest first."""
UNIT_MS = {".hours": 3_600_000, ".minutes": 60_000}

# What a URL may hold besides an address.
_SECRETS = frozenset({"metadata", "storage"})
_TYPES = {
    "producer.id.expiration.ms": Type.INT,
    "producer.id.expiration.check.interval.ms": Type.INT,
}
"""Where Kafka's type isn't the one that the kind of the setting suggests."""


def _at_least_one(name: str, value: Value) -> None:
    if isinstance(value, int) and value < 1:
        raise BadValue(f"requirement failed: {name} must be greater than or equal to 1")


def _not_negative(name: str, value: Value) -> None:
    if isinstance(value, int) and value < 0:
        raise BadValue(f"requirement failed: {name} must be greater than or equal to 0")


def _not_zero(name: str, value: Value) -> None:
    if value == 0:
        problem = "must be unlimited (-1) or, greater than or equal to 1"
        raise BadValue(f"requirement failed: {name} {problem}")


_OWN_CHECKS = {
    "log.roll.ms": _at_least_one,
    "log.roll.jitter.ms": _not_negative,
    "log.retention.ms": _not_zero,
    "log.flush.interval.ms": lambda name, value: None,
}


def _topic_defaults() -> dict[str, BrokerKey]:
    found: dict[str, BrokerKey] = {}
    for topic_key in TOPIC_KEYS.values():
        name = topic_key.broker_key
        if not name:
            continue
        doc = f"The default of the topic configuration {topic_key.name}. {topic_key.doc}"
        # Of those in several units only the largest has a default.
        default = None if name in SYNONYMS else topic_key.default
        check = _OWN_CHECKS.get(name, topic_key.check)
        key = Key(name, topic_key.type, topic_key.default, doc, check, unique=topic_key.unique)
        found[name] = BrokerKey(name, topic_key.type, default, doc, key)
    for name, kind, fixed, what in (
        ("log.roll.hours", Type.INT, "168", "segment.ms, in hours"),
        ("log.roll.jitter.hours", Type.INT, "0", "segment.jitter.ms, in hours"),
        ("log.retention.minutes", Type.INT, None, "retention.ms, in minutes"),
        ("log.retention.hours", Type.INT, "168", "retention.ms, in hours"),
        ("log.flush.scheduler.interval.ms", Type.LONG, LONG_MAX, "flush.ms"),
    ):
        doc = f"The default of the topic configuration {what}; weaker than the one in ms."
        found[name] = BrokerKey(name, kind, fixed, doc)
    return found


def _own(setting: Setting) -> BrokerKey:
    kind = _TYPES.get(setting.key, _type(setting))
    key = None
    if setting.key in DYNAMIC_SETTINGS:
        low = setting.kind.minimum if isinstance(setting.kind, Integer | Size) else 0
        key = Key(setting.key, kind, plain(setting.default) or "", setting.doc, at_least(low))
    sensitive = setting.key in _SECRETS
    return BrokerKey(setting.key, kind, plain(setting.default), setting.doc, key, sensitive)


def _type(setting: Setting) -> Type:
    kind = setting.kind
    if isinstance(kind, Boolean):
        return Type.BOOLEAN
    if isinstance(kind, Integer | Size):
        return Type.INT if kind.maximum <= INT32_MAX else Type.LONG
    return Type.LIST if isinstance(kind, Names) else Type.STRING


def plain(value: object) -> str | None:
    """A setting's value as Kafka shows it: numbers without units."""
    if value is None:
        return None
    if isinstance(value, bool | int | float):
        return show(value)
    if type(value) is tuple:
        # Names, or names with numbers.
        return ",".join(one if isinstance(one, str) else ":".join(map(str, one)) for one in value)
    return str(value)


DYNAMIC_SETTINGS = frozenset({"max.connections", "producer.id.expiration.ms"})
"""Settings, besides the defaults of topics, that can be changed while the broker runs."""

_TOPIC_DEFAULTS = _topic_defaults()
BROKER_KEYS: Mapping[str, BrokerKey] = {
    **{setting.key: _own(setting) for setting in SETTINGS.values()},
    **_TOPIC_DEFAULTS,
}
FIXED = FIXED_NAMES | {name for name, key in BROKER_KEYS.items() if not key.dynamic}
"""Names that can't be changed while a broker runs, of Dray and of Kafka."""


def static_values(settings: Settings) -> dict[str, str]:
    """What the broker was started with, where it isn't the default."""
    found = {}
    for setting in SETTINGS.values():
        value = getattr(settings, setting.attribute)
        text = plain(value)
        if value != setting.default and text is not None:
            found[setting.key] = text
    return found
