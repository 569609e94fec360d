"""The tables: every default is a value that its own key takes, and is shown as it stands."""

from __future__ import annotations

from drayd.configs.broker_keys import BROKER_KEYS, FIXED, SYNONYMS
from drayd.configs.client_metrics import CLIENT_METRICS_KEYS
from drayd.configs.group_keys import GROUP_KEYS, check_group
from drayd.configs.topic_keys import TOPIC_KEYS


def test_defaults_are_values() -> None:
    for table in (TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS):
        for key in table.values():
            if not key.hidden:
                assert key.show(key.default) == key.default
            assert key.doc.endswith(".")


def test_every_default_of_topics_has_a_brokers_setting() -> None:
    for key in TOPIC_KEYS.values():
        if key.broker_key:
            assert BROKER_KEYS[key.broker_key].dynamic
    assert {name for names in SYNONYMS.values() for name in names} <= set(BROKER_KEYS)


def test_what_can_be_changed_is_not_fixed() -> None:
    assert not {name for name, key in BROKER_KEYS.items() if key.dynamic} & FIXED


def test_stores_addresses_are_not_shown() -> None:
    # They may hold a password.
    assert BROKER_KEYS["metadata"].sensitive
    assert BROKER_KEYS["storage"].sensitive


def test_the_defaults_of_groups_lie_within_their_bounds() -> None:
    check_group({}, lambda name: None)
    check_group({name: key.default for name, key in GROUP_KEYS.items()}, lambda name: None)
