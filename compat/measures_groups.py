"""What the bench measures of consumer groups."""

import asyncio
import time
from contextlib import AsyncExitStack

from compat import group_load
from compat.measures import Factory, Measures, Scale, create_topic, metered
from compat.servers import Server
from compat.wire import Wire

PARTITIONS = 16
PROTOCOLS = ("classic", "consumer")
GROUPS = 1_000
BEAT_EVERY_S = 3.0
# Both members of a group are to be in its first generation.
JOIN_DELAY_MS = 300
IN_FLIGHT = 64


def groups(make: Factory, scale: Scale) -> Measures:
    """Joining, heart-beating, committing."""
    measures: Measures = {}
    with make("groups", ["group.initial.rebalance.delay.ms=0"]) as server:
        with Wire(server.address) as wire:
            create_topic(wire, "grouped", PARTITIONS)
        # The first group of a server waits for what it makes for all of them.
        group_load.join_times(server.address, "grouped", PARTITIONS, "classic", 1)
        for protocol in PROTOCOLS:
            joined = group_load.join_times(
                server.address, "grouped", PARTITIONS, protocol, scale.join_rounds
            )
            measures[f"groups/join/{protocol}"] = joined._asdict()
        asyncio.run(group_load.commits(server.address, "grouped", IN_FLIGHT, scale.commit_s / 2))
        with metered(server) as used:
            commits = asyncio.run(
                group_load.commits(server.address, "grouped", IN_FLIGHT, scale.commit_s)
            )
        measures["groups/commit"] = commits._asdict() | {"cpu_s": used["cpu_s"]}
    delay = [f"group.initial.rebalance.delay.ms={JOIN_DELAY_MS}"]
    with make("heartbeats", delay) as server:
        measures["groups/heartbeats"] = asyncio.run(_heartbeats(server, scale))
    return measures


async def _heartbeats(server: Server, scale: Scale) -> dict[str, float]:
    beats = group_load.Heartbeats(server.address, GROUPS, BEAT_EVERY_S)
    async with AsyncExitStack() as stack:
        await beats.join(stack)
        await beats.beat(BEAT_EVERY_S)
        began = time.perf_counter()
        with metered(server) as used:
            count = await beats.beat(scale.heartbeat_s)
        seconds = time.perf_counter() - began
    return {
        "per_s": count / seconds,
        "cores": used["cpu_s"] / seconds,
        "peak_rss_mb": used["peak_rss_mb"],
    }
