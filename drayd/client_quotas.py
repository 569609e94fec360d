"""What `drayd admin quotas` asks of a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drayd.client import Api, Client, expect_success
from protocol.messages import make, nested, request_class

DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", 1, 1)
ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", 1, 1)

DEFAULT = "<default>"


def list_quotas(client: Client) -> list[dict[str, Any]]:
    """A row for every limit."""
    answer = client.ask(DESCRIBE_CLIENT_QUOTAS, components=(), strict=False)
    expect_success("list the quotas", answer.error_code, answer.error_message)
    rows = [
        {
            "entity": ", ".join(
                f"{part.entity_type} {DEFAULT if part.entity_name is None else part.entity_name}"
                for part in entry.entity
            ),
            "quota": limit.key,
            "limit": limit.value,
        }
        for entry in answer.entries
        for limit in entry.values
    ]
    return sorted(rows, key=lambda row: (row["entity"], row["quota"]))


def alter_quotas(
    client: Client,
    entity: Mapping[str, str | None],
    limits: Mapping[str, float],
    removed: Sequence[str] = (),
) -> None:
    entry_class = nested(request_class(ALTER_CLIENT_QUOTAS.key, 1), "entries")
    part, op = nested(entry_class, "entity"), nested(entry_class, "ops")
    answer = client.ask(
        ALTER_CLIENT_QUOTAS,
        entries=(
            make(
                entry_class,
                entity=tuple(
                    make(part, entity_type=kind, entity_name=name) for kind, name in entity.items()
                ),
                ops=(
                    *(
                        make(op, key=key, value=value, remove=False)
                        for key, value in limits.items()
                    ),
                    *(make(op, key=key, value=0.0, remove=True) for key in removed),
                ),
            ),
        ),
        validate_only=False,
    )
    for entry in answer.entries:
        expect_success("change the quotas", entry.error_code, entry.error_message)
