"""The bytes of the Kafka wire: frames, headers, messages, record batches, error codes.

Everything here is pure: no sockets, no clock, no event loop. Message classes come from `kio`
(generated from Kafka's own schemas); the reader and the writer are ours.
"""
