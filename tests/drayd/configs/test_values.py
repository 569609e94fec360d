"""Typed values: what Kafka reads, how it shows it, and what it says when it can't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drayd.configs.values import BadValue, Type, parse, show, show_java


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        (Type.BOOLEAN, " TRUE", "true"),
        (Type.INT, "+7 ", "7"),
        (Type.LONG, "-0", "0"),
        (Type.DOUBLE, "1", "1.0"),
        (Type.DOUBLE, "1e-4", "1.0E-4"),
        (Type.DOUBLE, "12345678", "1.2345678E7"),
        (Type.DOUBLE, "1.7976931348623157E308", "1.7976931348623157E308"),
        (Type.DOUBLE, "0.5f", "0.5"),
        (Type.DOUBLE, "-Infinity", "-Infinity"),
        (Type.DOUBLE, "NaN", "NaN"),
        (Type.LIST, " a , b,,c ", "a,b,,c"),
        (Type.LIST, " ", ""),
        (Type.STRING, " as it is ", "as it is"),
    ],
)
def test_values_are_shown_as_java_would(kind: Type, text: str, shown: str) -> None:
    assert show(parse("key", kind, text)) == shown


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Type.BOOLEAN, "yes"),
        (Type.INT, str(2**31)),
        (Type.SHORT, str(2**15)),
        (Type.LONG, str(-(2**63) - 1)),
        (Type.LONG, "9" * 10_000),
        (Type.INT, "1_000"),
        (Type.INT, "٣"),
        (Type.INT, ""),
        (Type.DOUBLE, "1_0"),
        (Type.DOUBLE, "nan"),
    ],
)
def test_what_is_no_value_is_named_as_it_was_sent(kind: Type, text: str) -> None:
    with pytest.raises(BadValue, match=r"Invalid value .* for configuration key: "):
        parse("key", kind, text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_survive(number: int) -> None:
    assert parse("key", Type.LONG, show(number)) == number


@given(st.floats(allow_nan=False))
def test_fractions_survive(number: float) -> None:
    assert parse("key", Type.DOUBLE, show(number)) == number


def test_lists_in_messages_have_brackets() -> None:
    assert show_java(("0:1", "*")) == "[0:1, *]"
