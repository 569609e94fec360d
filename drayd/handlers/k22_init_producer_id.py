"""InitProducerId: a number for an idempotent producer, never given out twice."""

from __future__ import annotations

from drayd.call import Call, Result
from metadata.store import StoreError
from protocol.errors import ErrorCode, KafkaError

KEY = 22
NAME = "InitProducerId"
# Version 6 is part of transactions with two phases, which Kafka 4.3 doesn't serve by default.
VERSIONS = range(6)


async def handle(call: Call) -> Result:
    if call.request.transactional_id is not None:
        # Fatal to a transactional producer, so that it stops and says so instead of looping.
        code = (
            ErrorCode.transactional_id_authorization_failed
            if call.request.transactional_id
            else ErrorCode.invalid_request
        )
        return _answer(call, code)
    known_id = getattr(call.request, "producer_id", -1)
    known_epoch = getattr(call.request, "producer_epoch", -1)
    if (known_id == -1) != (known_epoch == -1):
        # KIP-360: both or neither.
        return _answer(call, ErrorCode.invalid_request)
    try:
        (producer_id,) = await call.broker.producer_ids.take()
    except StoreError as error:
        raise KafkaError(ErrorCode.coordinator_load_in_progress, str(error)) from error
    return _answer(call, ErrorCode.none, producer_id, 0)


def _answer(call: Call, code: ErrorCode, producer_id: int = -1, producer_epoch: int = -1) -> Result:
    return call.respond(
        throttle_time=0,
        error_code=code,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        ongoing_txn_producer_id=-1,
        ongoing_txn_producer_epoch=-1,
    )
