"""AlterClientQuotas: sets and removes limits of entities. Each entity has an outcome of its own."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from drayd.quota_entities import check_entity, check_limit
from metadata.quotas import Alteration, Entity
from metadata.store import StoreError
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 49
NAME = "AlterClientQuotas"
VERSIONS = range(0, 2)

_Identity = frozenset[tuple[str, str | None]]
_OK = KafkaError(ErrorCode.none)


async def handle(call: Call) -> Result:
    # Of an entity, a type or a limit that is named twice, the last one counts, as in Kafka.
    asked: dict[_Identity, tuple[Entity, Any]] = {}
    for entry in call.request.entries:
        entity = {part.entity_type: part.entity_name for part in entry.entity}
        asked[frozenset(entity.items())] = (entity, entry.ops)
    outcomes: dict[_Identity, KafkaError] = {}
    alterations: dict[_Identity, Alteration] = {}
    for identity, (named, ops) in asked.items():
        outcomes[identity] = _OK
        try:
            alterations[identity], problem = _alteration(named, ops)
        except KafkaError as error:
            problem = error
        if problem is not None:
            outcomes[identity] = problem
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
            for identity, (entity, _) in asked.items()
        ),
    )


def _alteration(entity: Entity, ops: Any) -> tuple[Alteration, KafkaError | None]:
    """What is to be stored, and what is wrong with the rest. Kafka stores the good limits of an
    entity also where another one is refused."""
    allowed = check_entity(entity)
    limits: dict[str, float] = {}
    removed = set()
    problem = None
    for key, op in {op.key: op for op in ops}.items():
        if op.remove:
            removed.add(key)
            continue
        try:
            check_limit(allowed, key, op.value)
            limits[key] = op.value
        except KafkaError as error:
            problem = error
    return Alteration(entity, limits, removed), problem
