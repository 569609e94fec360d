"""The configuration of resources: topics, brokers, groups and client metrics, as Kafka has them.

`values` is how a text becomes a typed value and back, `checks` what a value may be; the tables of
keys are in `topic_keys`, `group_keys`, `broker_keys` and `client_metrics`. `brokers` resolves the
layers of a broker's configuration, `changes` applies what AlterConfigs and IncrementalAlterConfigs
ask for, and `service` is what the handlers call.
"""
