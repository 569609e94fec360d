"""DescribeCluster: the cluster's id and its brokers."""

from __future__ import annotations

from drayd import operations
from drayd.call import Call, Result
from protocol.errors import ErrorCode
from protocol.messages import make

KEY = 60
NAME = "DescribeCluster"
VERSIONS = range(3)

BROKERS = 1
CONTROLLERS = 2


async def handle(call: Call) -> Result:
    broker = call.broker
    endpoint_type = getattr(call.request, "endpoint_type", BROKERS)
    code, message = ErrorCode.none, None
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.mismatched_endpoint_type
        message = (
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER"
        )
    elif endpoint_type != BROKERS:
        code = ErrorCode.unsupported_endpoint_type
        message = f"Unsupported endpoint type {endpoint_type}"
    if code is not ErrorCode.none:
        # As Kafka: the error says it all, the rest is empty.
        return call.respond(
            throttle_time=0,
            error_code=code,
            error_message=message,
            endpoint_type=BROKERS,
            cluster_id="",
            controller_id=-1,
            brokers=(),
        )
    nodes = broker.nodes()
    return call.respond(
        throttle_time=0,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=min(node.node_id for node in nodes),
        brokers=tuple(
            make(
                call.item_class("brokers"),
                broker_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_fenced=False,
            )
            for node in nodes
        ),
        cluster_authorized_operations=operations.shown(
            operations.CLUSTER, call.request.include_cluster_authorized_operations
        ),
    )
