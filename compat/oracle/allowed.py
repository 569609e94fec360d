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


RULES = (
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
    # What is a matter of hash tables, or of chance.
    Rule("Metadata", "topics", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("Produce", "responses", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("JoinGroup", "members", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("DescribeGroups", "groups.*.members", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("DescribeConfigs", "results.*.configs", UNORDERED, "Kafka's order is a hash table's"),
    Rule("Produce", "responses.*.partition_responses", UNORDERED, "likewise"),
    Rule("Fetch", "responses", UNORDERED, "Kafka puts errors last"),
    Rule("Fetch", "responses.*.partitions", UNORDERED, "likewise"),
    Rule("ListOffsets", "topics.*.partitions", UNORDERED, "Kafka's order is a hash table's"),
    Rule("DeleteTopics", "responses", UNORDERED, "Kafka shuffles them on purpose"),
    Rule("OffsetFetch", "**.partitions", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("DescribeGroups", "groups", UNORDERED, "Kafka's order is that of its threads"),
    Rule("DeleteGroups", "results", UNORDERED, "Kafka's order is that of its threads"),
    Rule("AlterClientQuotas", "entries", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("DescribeClientQuotas", "entries", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("CreateTopics", "topics", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("CreatePartitions", "results", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("DeleteRecords", "**.partitions", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("DescribeLogDirs", "**.partitions", UNORDERED, "Kafka's order is that of a hash table"),
    Rule("DescribeUserScramCredentials", "results", UNORDERED, "likewise"),
    Rule("DescribeLogDirs", "**.total_bytes", IGNORED, "the machine's disk"),
    Rule("DescribeLogDirs", "**.usable_bytes", IGNORED, "the machine's disk"),
    Rule(
        "ConsumerGroupHeartbeat",
        "assignment.topic_partitions",
        UNORDERED,
        "Kafka's order is that of a hash table",
    ),
    Rule("ConsumerGroupHeartbeat", "**.partitions", UNORDERED, "likewise"),
    Rule("ConsumerGroupDescribe", "**.partitions", UNORDERED, "likewise"),
    Rule("ConsumerGroupDescribe", "groups", UNORDERED, "likewise"),
    Rule("ConsumerGroupDescribe", "groups.*.members", UNORDERED, "likewise"),
    Rule("ConsumerGroupDescribe", "**.subscribed_topic_names", UNORDERED, "likewise"),
    Rule("ConsumerGroupDescribe", "**.topic_partitions", UNORDERED, "likewise"),
    # What Dray is.
    Rule("DescribeConfigs", "**.documentation", IGNORED, "the texts are Dray's own"),
    Rule("Fetch", "**.records", WHOLE, "Kafka cuts the last batch, clients drop it; Dray doesn't"),
    Rule("ApiVersions", "api_keys", FEWER, "Dray offers what it has"),
    Rule("ApiVersions", "supported_features", FEWER, "Dray announces what it has"),
    Rule("ApiVersions", "finalized_features", FEWER, "Dray announces what it has"),
)
