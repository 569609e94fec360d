"""What can be wrong with a request.

`KafkaError` carries the code that the client is told; `Malformed` means that the bytes are no
valid message, so nothing can be answered and the connection is closed.
"""

from kio.schema.errors import ErrorCode

__all__ = ("ErrorCode", "KafkaError", "Malformed")


class KafkaError(Exception):
    """A request, or one item of it, that is answered with a Kafka error code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message


class Malformed(Exception):
    """Bytes that do not hold the message that they claim to hold."""
