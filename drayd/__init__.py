"""The Dray daemon: a Kafka broker that owns nothing.

Importing this package imports nothing else, so that `drayd version` and `--help` stay quick.
"""

__version__ = "0.1.0"
