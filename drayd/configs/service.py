"""The configuration of all resources, as the handlers ask for it.

Topics keep theirs in the topic's record, everything else in `metadata.configs`. A change is one
compare-and-set of that record; it counts on this broker when it is answered, and on others as soon
as their watch brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

import msgspec

from drayd import topic_config
from drayd.config import Settings
from drayd.configs import changes, loggers
from drayd.configs.broker_keys import BROKER_KEYS, FIXED, static_values
from drayd.configs.brokers import BrokerView, Entry, Synonym, described
from drayd.configs.changes import Apply, Change
from drayd.configs.client_metrics import CLIENT_METRICS_KEYS, BadSubscription, check_subscription
from drayd.configs.group_keys import GROUP_KEYS, check_group
from drayd.configs.keys import Key
from drayd.configs.topic_keys import TOPIC_KEYS
from drayd.configs.values import BadValue, Source
from drayd.logs import Logger
from drayd.topic_config import TopicLimits
from drayd.topic_names import check_name
from metadata.configs import BROKERS, CLIENT_METRICS, GROUPS, StoredConfigs
from metadata.store import StoreError
from metadata.topics import TopicMissing, Topics
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError

log = Logger(__name__)

MIN_ISR = "min.insync.replicas"
# Kafka sets it for the cluster when it is formatted, and never lets go of it again.
_FOR_ALL = {MIN_ISR: "1"}


class Kind(IntEnum):
    """Types of resources, as requests name them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


class ConfigService:
    def __init__(self, settings: Settings, stored: StoredConfigs, topics: Topics) -> None:
        self._broker_id = settings.broker_id
        self._static = static_values(settings)
        self._stored = stored
        self._topics = topics
        self._view: tuple[int, BrokerView] | None = None
        self._watchers: list[Callable[[], None]] = []
        stored.on_change = self._changed

    # -- what counts now ---------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Changes with the configuration of any resource that isn't a topic."""
        return self._stored.generation

    @property
    def view(self) -> BrokerView:
        """This broker's configuration."""
        if self._view is None or self._view[0] != self.generation:
            for_all = {**_FOR_ALL, **self._stored.of(BROKERS, "")}
            own = self._stored.of(BROKERS, str(self._broker_id))
            self._view = (self.generation, BrokerView(self._static, for_all, own))
        return self._view[1]

    def value(self, name: str) -> int:
        """A number among the broker's settings, with what was changed while it runs."""
        text = self.view.value(name)
        key = BROKER_KEYS[name].key
        assert text is not None and key is not None
        value = key.parse(text)
        assert isinstance(value, int)
        return value

    def limits(self, config: Mapping[str, str]) -> TopicLimits:
        return topic_config.limits(self.view, config)

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """What was set for a group, e.g. `consumer.session.timeout.ms`."""
        return self._stored.of(GROUPS, group_id)

    def on_broker_change(self, call: Callable[[], None]) -> None:
        """`call` whenever this broker's configuration may have changed."""
        self._watchers.append(call)

    def _changed(self, kind: str, name: str) -> None:
        if kind == BROKERS and name in ("", str(self._broker_id)):
            for call in self._watchers:
                call()

    async def load(self) -> None:
        await self._stored.load()

    async def follow(self) -> None:
        await self._stored.follow()

    # -- shown -------------------------------------------------------------------------------

    def described(self, config: Mapping[str, str]) -> list[Entry]:
        """A topic's configuration as CreateTopics shows it, sorted by name."""
        return sorted(self.view.topic_entries(config, as_stored=True))

    async def describe(self, kind: int, name: str) -> Iterable[Entry]:
        """All that a resource has; KafkaError if there is no such resource."""
        match kind:
            case Kind.TOPIC:
                check_name(name)
                topic = await self._find(name)
                if topic is None:
                    raise KafkaError(ErrorCode.unknown_topic_or_partition)
                return self.view.topic_entries(topic.config)
            case Kind.BROKER if not name:
                return self.view.entries_for_all()
            case Kind.BROKER:
                if _broker_id(name, "Broker") != self._broker_id:
                    raise _invalid(
                        f"Unexpected broker id, expected {self._broker_id} or empty string, "
                        f"but received {name}"
                    )
                return self.view.entries()
            case Kind.BROKER_LOGGER:
                if not name:
                    raise _invalid("Broker id must not be empty")
                if _broker_id(name, "Broker") != self._broker_id:
                    raise _invalid(
                        f"Unexpected broker id, expected {self._broker_id} but received {name}"
                    )
                return loggers.entries()
            case Kind.CLIENT_METRICS:
                if not name:
                    raise _invalid("Client metrics subscription name must not be empty")
                own = self._stored.of(CLIENT_METRICS, name)
                return _entries(CLIENT_METRICS_KEYS, own, Source.CLIENT_METRICS, lambda key: [])
            case Kind.GROUP:
                if not name:
                    raise _invalid("Group name must not be empty")
                own = self._stored.of(GROUPS, name)
                return _entries(GROUP_KEYS, own, Source.GROUP, self._group_synonyms)
        raise _invalid(
            "This most likely occurs because of a request being malformed by the client library "
            "or the message was sent to an incompatible broker. See the broker logs for more "
            "details."
        )

    def _group_synonyms(self, key: Key) -> list[Synonym]:
        found = self.view.synonyms(key.broker_key) if key.broker_key else []
        return found or [Synonym(key.broker_key or key.name, key.default, Source.DEFAULT)]

    def resources(self, kinds: Sequence[int]) -> list[tuple[int, str]]:
        """What can be described, of these kinds; KafkaError for kinds that there aren't."""
        if not set(kinds) <= set(Kind):
            raise KafkaError(ErrorCode.unsupported_version)
        own = str(self._broker_id)
        named: dict[Kind, Callable[[], list[str]]] = {
            Kind.GROUP: lambda: self._stored.names(GROUPS),
            Kind.CLIENT_METRICS: lambda: self._stored.names(CLIENT_METRICS),
            Kind.BROKER_LOGGER: lambda: [own],
            Kind.BROKER: lambda: [own],
            Kind.TOPIC: lambda: [topic.name for topic in self._topics.all()],
        }
        return [
            (kind, name)
            for kind, names in named.items()
            if not kinds or kind in kinds
            for name in names()
        ]

    # -- changed -----------------------------------------------------------------------------

    async def alter(
        self, kind: int, name: str, wanted: Sequence[Change], *, replace: bool, validate_only: bool
    ) -> None:
        """AlterConfigs (`replace`) or IncrementalAlterConfigs of one resource; KafkaError if it
        can't be."""
        changes.check_form(wanted)
        match kind:
            case Kind.TOPIC:
                await self._alter_topic(name, wanted, replace, validate_only)
            case Kind.BROKER:
                await self._alter_broker(name, wanted, replace, validate_only)
            case Kind.BROKER_LOGGER if not replace:
                if (broker_id := _broker_id(name, "Node")) != self._broker_id:
                    raise _invalid(
                        f"Unexpected node id. Expected {self._broker_id}, but received {broker_id}"
                    )
                loggers.alter(wanted, validate_only=validate_only)
            case Kind.GROUP:
                apply = _checked(self._applied(wanted, replace, {}), self._check_group(name))
                await self._store(GROUPS, name, apply, validate_only)
            case Kind.CLIENT_METRICS:
                apply = _checked(self._applied(wanted, replace, {}), _check_metrics(name))
                await self._store(CLIENT_METRICS, name, apply, validate_only)
            case _:
                raise _invalid(f"Unknown resource type {kind}")
        if not validate_only:
            # Names only: a value may be a secret.
            log.info(
                "configuration changed",
                resource=Kind(kind).name.lower(),
                name=name or "(all)",
                keys=",".join(change.name for change in wanted),
            )

    def _applied(self, wanted: Sequence[Change], replace: bool, lists: Mapping[str, str]) -> Apply:
        if replace:
            return changes.replace_all(wanted)
        return changes.apply_all(wanted, lists, _cannot_edit)

    async def _alter_topic(
        self, name: str, wanted: Sequence[Change], replace: bool, validate_only: bool
    ) -> None:
        lists = {
            key: self.view.topic_default(TOPIC_KEYS[key]) for key in changes.lists_of(TOPIC_KEYS)
        }

        def check(config: Mapping[str, str]) -> None:
            if not name:
                raise _invalid("Default topic resources are not allowed.")
            check_name(name)
            topic_config.check(config)

        apply = _checked(self._applied(wanted, replace, lists), check)
        topic = await self._find(name)
        if topic is None:
            apply({})
            raise _no_topic(name)
        if validate_only:
            apply(topic.config)
            return
        try:
            await self._topics.update(
                topic.topic_id,
                lambda one: msgspec.structs.replace(one, config=apply(one.config)),
            )
        except TopicMissing:
            raise _no_topic(name) from None
        except StoreError as error:
            raise _not_stored(error) from error

    async def _alter_broker(
        self, name: str, wanted: Sequence[Change], replace: bool, validate_only: bool
    ) -> None:
        if name:
            broker_id = _broker_id(name, "Node")
            if broker_id != self._broker_id:
                raise _invalid(
                    f"Unexpected broker id, expected {self._broker_id}, but received {name}"
                )
            name = str(broker_id)
        defaults = changes.lists_of(
            {each: key.key for each, key in BROKER_KEYS.items() if key.key is not None}
        )
        apply = (
            changes.replace_all(wanted)
            if replace
            else changes.apply_all(wanted, defaults, _cannot_edit_broker)
        )
        implied = {} if name else _FOR_ALL

        def changed(current: Mapping[str, str]) -> dict[str, str]:
            new = apply({**implied, **current})
            _check_broker(new)
            if name and any(change.name == MIN_ISR for change in wanted):
                raise KafkaError(
                    ErrorCode.invalid_config,
                    f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.",
                )
            if not name and MIN_ISR not in new:
                raise KafkaError(
                    ErrorCode.invalid_config,
                    f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.",
                )
            # What is implied anyway isn't stored.
            return {key: text for key, text in new.items() if implied.get(key) != text}

        await self._store(BROKERS, name, changed, validate_only)

    def _check_group(self, name: str) -> Callable[[Mapping[str, str]], None]:
        def check(config: Mapping[str, str]) -> None:
            if not name:
                raise _invalid("Default group resources are not allowed.")
            try:
                check_group(config, self.view.value)
            except BadValue as error:
                raise KafkaError(ErrorCode.invalid_config, str(error)) from None

        return check

    async def _store(self, kind: str, name: str, apply: Apply, validate_only: bool) -> None:
        if validate_only:
            apply(self._stored.of(kind, name))
            return
        try:
            await self._stored.change(kind, name, apply)
        except StoreError as error:
            raise _not_stored(error) from error

    async def _find(self, name: str) -> Topic | None:
        try:
            return await self._topics.find(name)
        except StoreError as error:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"the topic could not be looked up: {error}"
            ) from error


def _checked(apply: Apply, check: Callable[[Mapping[str, str]], None]) -> Apply:
    def both(current: Mapping[str, str]) -> dict[str, str]:
        new = apply(current)
        check(new)
        return new

    return both


def _check_metrics(name: str) -> Callable[[Mapping[str, str]], None]:
    def check(config: Mapping[str, str]) -> None:
        if not name:
            raise _invalid("Subscription name can't be empty")
        try:
            check_subscription(config)
        except BadValue as error:
            raise KafkaError(ErrorCode.invalid_config, str(error)) from None
        except BadSubscription as error:
            raise _invalid(str(error)) from None

    return check


def _check_broker(config: Mapping[str, str]) -> None:
    fixed = [name for name in config if name in FIXED]
    if fixed:
        raise _invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    for name, text in config.items():
        known = BROKER_KEYS.get(name)
        # What nobody knows is kept, as Kafka does for its plugins.
        if known is not None and known.key is not None:
            try:
                known.key.parse(text)
            except BadValue as error:
                raise _invalid(str(error)) from None


def _cannot_edit(change: Change) -> KafkaError:
    if change.operation not in tuple(changes.Operation):
        return KafkaError(ErrorCode.unknown_server_error)
    operation = changes.Operation(change.operation).name
    return KafkaError(
        ErrorCode.invalid_config,
        f"Can't {operation} to key {change.name} because its type is not LIST.",
    )


def _cannot_edit_broker(change: Change) -> KafkaError:
    if change.operation not in tuple(changes.Operation):
        return _invalid(f"Unknown operations type {change.operation}")
    if change.name not in BROKER_KEYS:
        return KafkaError(ErrorCode.invalid_config, f"Unknown config name: {change.name}")
    operation = changes.Operation(change.operation).name.lower()
    return KafkaError(
        ErrorCode.invalid_config,
        f"Config value {operation} is not allowed for config key: {change.name}",
    )


def _broker_id(name: str, what: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise _invalid(f"{what} id must be an integer, but it is: {name}") from None


def _no_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")


def _not_stored(error: StoreError) -> KafkaError:
    return KafkaError(
        ErrorCode.request_timed_out, f"the configuration could not be stored: {error}"
    )


def _entries(
    keys: Mapping[str, Key],
    own: Mapping[str, str],
    source: Source,
    broker_synonyms: Callable[[Key], list[Synonym]],
) -> Iterable[Entry]:
    for key in keys.values():
        synonyms = broker_synonyms(key)
        text = own.get(key.name)
        if text is None:
            weaker = next((one.value for one in synonyms if one.value is not None), key.default)
            yield described(key, key.show(weaker), synonyms)
        else:
            value = key.show(text)
            yield described(key, value, [Synonym(key.name, value, source), *synonyms])
