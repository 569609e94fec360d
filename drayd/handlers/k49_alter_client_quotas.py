"""AlterClientQuotas: sets and removes limits of entities. Each entity has an outcome of its own."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from drayd.quota_entities import check_entity, check_limit, ordered, shown
from metadata.quotas import Alteration, Entity
from metadata.store import StoreError
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 49
NAME = "AlterClientQuotas"
VERSIONS = range(2)

_Identity = frozenset[tuple[str, str | None]]
_OK = KafkaError(ErrorCode.none)


async def handle(call: Call) -> Result:
    entities: dict[_Identity, Entity] = {}
    outcomes: dict[_Identity, KafkaError] = {}
    alterations: dict[_Identity, Alteration] = {}
    for entry in call.request.entries:
        # Of a type that is named twice the last one counts; of an entity the first one is stored,
        # but the second one is an error. Both as in Kafka.
        entity = ordered({part.entity_type: part.entity_name for part in entry.entity})
        identity = frozenset(entity.items())
        twice = identity in entities or len({op.key for op in entry.ops}) < len(entry.ops)
        entities[identity] = entity
        try:
            if twice:
                raise KafkaError(
                    ErrorCode.invalid_request, f"Ignoring duplicate entity {shown(entity)}"
                )
            alterations[identity] = _alteration(entity, entry.ops)
            outcomes[identity] = _OK
        except KafkaError as error:
            outcomes[identity] = error
    if not call.request.validate_only:
        try:
            await call.broker.quotas.alter(list(alterations.values()))
        except StoreError as error:
            failed = KafkaError(ErrorCode.request_timed_out, f"not stored: {error}")
            outcomes.update(dict.fromkeys(alterations, failed))
    entry_class = call.item_class("entries")
    part_class = nested(entry_class, "entity")
    return call.respond(
        throttle_time=0,
        entries=tuple(
            make(
                entry_class,
                error_code=outcomes[identity].code,
                error_message=outcomes[identity].message or None,
                entity=tuple(
                    make(part_class, entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ),
            )
            for identity, entity in entities.items()
        ),
    )


def _alteration(entity: Entity, ops: Any) -> Alteration:
    allowed = check_entity(entity)
    for op in ops:
        if not op.remove:
            check_limit(allowed, op.key, op.value)
    return Alteration(
        entity,
        {op.key: op.value for op in ops if not op.remove},
        {op.key for op in ops if op.remove},
    )
