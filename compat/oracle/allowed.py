"""Every difference between Kafka's answers and Dray's that is allowed, with its reason.

A rule is for an API (`*`: all) and a path of its answer (`*`: one step, `**`: any number). What a
rule covers is replaced before answers are compared or recorded:

- SYMBOL: each distinct value becomes `<kind n>`, so it must be the same value at the same places;
  null, -1, 0 (unless it is a producer id) and empty text stay what they are.
- TIME: a time of today becomes `<now>`, also in texts.
- COUNT: any number above 0 becomes `<positive>`.
- IGNORED: the value isn't compared at all.
- UNORDERED: the items of a list are compared without regard to their order.
- FEWER: likewise, and Kafka may have items that Dray hasn't; those that Dray has must be the same.
- WHOLE: batches that are cut off at the end of an answer are left out.
"""

from typing import NamedTuple

SYMBOL, TIME, COUNT, IGNORED = "symbol", "time", "count", "ignored"
UNORDERED, FEWER, WHOLE = "unordered", "fewer", "whole"


class Rule(NamedTuple):
    """One allowed difference."""

    api: str
    path: str
    rule: str
    reason: str


IN_ANY_ORDER = {
    "AlterClientQuotas": ("entries",),
    "ConsumerGroupDescribe": (
        "**.partitions",
        "groups",
        "groups.*.members",
        "**.subscribed_topic_names",
        "**.topic_partitions",
    ),
    "ConsumerGroupHeartbeat": ("assignment.topic_partitions", "**.partitions"),
    "CreatePartitions": ("results",),
    "CreateTopics": ("topics",),
    "DeleteGroups": ("results",),
    "DeleteRecords": ("**.partitions",),
    "DeleteTopics": ("responses",),
    "DescribeClientQuotas": ("entries",),
    "DescribeConfigs": ("results.*.configs",),
    "DescribeGroups": ("groups.*.members", "groups"),
    "DescribeLogDirs": ("**.partitions",),
    "DescribeUserScramCredentials": ("results",),
    "Fetch": ("responses", "responses.*.partitions"),
    "JoinGroup": ("members",),
    "ListOffsets": ("topics.*.partitions",),
    "Metadata": ("topics",),
    "OffsetFetch": ("**.partitions",),
    "Produce": ("responses", "responses.*.partition_responses"),
}
"""Lists whose order in Kafka is that of a hash table, of threads or of chance."""

RULES = (
    *(
        Rule(api, path, UNORDERED, "Kafka's order is that of a hash table, or of chance")
        for api, paths in IN_ANY_ORDER.items()
        for path in paths
    ),
    # Values that no two servers share.
    Rule("*", "**.port", SYMBOL, "each server listens on a free port"),
    Rule("*", "**.cluster_id", SYMBOL, "random"),
    Rule("*", "**.topic_id", SYMBOL, "random"),
    Rule("*", "**.producer_id", SYMBOL, "handed out from blocks of different sizes"),
    Rule("*", "**.session_id", SYMBOL, "random"),
    Rule("*", "**.member_id", SYMBOL, "random"),
    Rule("*", "**.log_dir", SYMBOL, "a folder of this machine"),
    Rule("*", "throttle_time", SYMBOL, "depends on when, and how fast; zero stays zero"),
    Rule("*", "**.log_append_time", TIME, "the server's clock"),
    Rule("Produce", "**.batch_index_error_message", TIME, "names the times that are allowed"),
    Rule("ApiVersions", "finalized_features_epoch", COUNT, "counts changes to Kafka's metadata"),
    Rule("DescribeLogDirs", "**.total_bytes", IGNORED, "the machine's disk"),
    Rule("DescribeLogDirs", "**.usable_bytes", IGNORED, "the machine's disk"),
    # What Dray is.
    Rule("DescribeConfigs", "**.documentation", IGNORED, "the texts are Dray's own"),
    Rule("Fetch", "**.records", WHOLE, "Kafka cuts the last batch, clients drop it; Dray doesn't"),
    Rule("ApiVersions", "api_keys", FEWER, "Dray offers what it has"),
    Rule("ApiVersions", "supported_features", FEWER, "Dray announces what it has"),
    Rule("ApiVersions", "finalized_features", FEWER, "Dray announces what it has"),
)
