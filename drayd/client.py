"""A small blocking Kafka client for `drayd admin`.

One connection, one request at a time, versions negotiated by ApiVersions. It works against any
Kafka broker, and it reads answers with the same bounded reader that reads requests.

Every failure is a ClientError whose message is one sentence for the person at the terminal.
"""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from drayd.kinds import HostPort
from protocol.errors import ErrorCode, Malformed
from protocol.messages import make, nested, request_class, response_class
from protocol.reader import read_message, skip_tagged_fields
from protocol.writer import Payload, Piece, write_message

CLIENT_ID = b"drayd-admin"
MAX_ANSWER_BYTES = 256 * 1024 * 1024

EARLIEST = -2
LATEST = -1

_SIZE = Struct(">i")
_HEAD = Struct(">hhih")


class ClientError(Exception):
    """A request that didn't work; the message is one sentence."""


class Api(NamedTuple):
    """An API with the versions of it that this client speaks."""

    key: int
    name: str
    min_version: int
    max_version: int


API_VERSIONS = Api(18, "ApiVersions", 0, 0)
METADATA = Api(3, "Metadata", 9, 12)
LIST_OFFSETS = Api(2, "ListOffsets", 4, 7)
CREATE_TOPICS = Api(19, "CreateTopics", 5, 7)
DELETE_TOPICS = Api(20, "DeleteTopics", 6, 6)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4)
ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1)
DELETE_RECORDS = Api(21, "DeleteRecords", 2, 2)
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", 2, 4)
CREATE_PARTITIONS = Api(37, "CreatePartitions", 2, 3)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 1)


class Client:
    """A connection to one broker."""

    def __init__(self, address: HostPort, *, timeout_seconds: float = 30.0) -> None:
        self._address = address
        self._timeout_ms = int(timeout_seconds * 1000)
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(address, timeout_seconds)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ClientError(f"Can't connect to a broker on {address}: {reason}.") from None
        try:
            answer = self._exchange(API_VERSIONS, 0)
            self._offered: dict[int, tuple[int, int]] = {
                api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
            }
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def topics(self, names: list[str] | None = None) -> Any:
        """The Metadata answer for these topics, or for all of them. Creates none."""
        version = self.version(METADATA)
        topic = nested(request_class(METADATA.key, version), "topics")
        wanted = (
            None
            if names is None
            else tuple(make(topic, topic_id=None, name=name) for name in names)
        )
        return self._exchange(
            METADATA,
            version,
            topics=wanted,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> Any:
        """Create one topic; -1 leaves a number to the broker."""
        version = self.version(CREATE_TOPICS)
        topic = nested(request_class(CREATE_TOPICS.key, version), "topics")
        config = nested(topic, "configs")
        answer = self._exchange(
            CREATE_TOPICS,
            version,
            topics=(
                make(
                    topic,
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=(),
                    configs=tuple(
                        make(config, name=key, value=value) for key, value in configs.items()
                    ),
                ),
            ),
            timeout=self._timeout_ms,
            validate_only=False,
        )
        (result,) = answer.topics
        expect_success(f'create topic "{name}"', result.error_code, result.error_message)
        return result

    def delete_topic(self, name: str) -> None:
        version = self.version(DELETE_TOPICS)
        topic = nested(request_class(DELETE_TOPICS.key, version), "topics")
        answer = self._exchange(
            DELETE_TOPICS,
            version,
            topics=(make(topic, name=name, topic_id=None),),
            timeout=self._timeout_ms,
        )
        (result,) = answer.responses
        expect_success(f'delete topic "{name}"', result.error_code, result.error_message)

    def add_partitions(self, name: str, count: int) -> None:
        """`count` is how many the topic has afterwards."""
        version = self.version(CREATE_PARTITIONS)
        topic = nested(request_class(CREATE_PARTITIONS.key, version), "topics")
        answer = self._exchange(
            CREATE_PARTITIONS,
            version,
            topics=(make(topic, name=name, count=count, assignments=None),),
            timeout=self._timeout_ms,
            validate_only=False,
        )
        (result,) = answer.results
        expect_success(f'add partitions to "{name}"', result.error_code, result.error_message)

    def delete_records(self, name: str, partition: int, offset: int) -> int:
        """The partition's new first offset; everything goes if `offset` is -1."""
        version = self.version(DELETE_RECORDS)
        topic = nested(request_class(DELETE_RECORDS.key, version), "topics")
        wanted = make(nested(topic, "partitions"), partition_index=partition, offset=offset)
        answer = self._exchange(
            DELETE_RECORDS,
            version,
            topics=(make(topic, name=name, partitions=(wanted,)),),
            timeout=self._timeout_ms,
        )
        result = answer.topics[0].partitions[0]
        expect_success(f"delete records of {name}/{partition}", result.error_code, None)
        return int(result.low_watermark)

    def sizes(self, name: str, partitions: list[int]) -> dict[int, int]:
        """The bytes of each partition, as far as the broker that is asked knows them."""
        version = self.version(DESCRIBE_LOG_DIRS)
        topic = nested(request_class(DESCRIBE_LOG_DIRS.key, version), "topics")
        answer = self._exchange(
            DESCRIBE_LOG_DIRS,
            version,
            topics=(make(topic, topic=name, partitions=tuple(partitions)),),
        )
        found = {}
        for folder in answer.results:
            expect_success(f"read the sizes of {name}", folder.error_code, None)
            for each in folder.topics:
                found.update({one.partition_index: one.partition_size for one in each.partitions})
        return found

    def offsets(self, name: str, partitions: list[int], timestamp: int) -> dict[int, int]:
        """An offset of each partition: `timestamp` is EARLIEST or LATEST."""
        version = self.version(LIST_OFFSETS)
        topic = nested(request_class(LIST_OFFSETS.key, version), "topics")
        partition = nested(topic, "partitions")
        answer = self._exchange(
            LIST_OFFSETS,
            version,
            replica_id=-1,
            isolation_level=0,
            topics=(
                make(
                    topic,
                    name=name,
                    partitions=tuple(
                        make(
                            partition,
                            partition_index=index,
                            current_leader_epoch=-1,
                            timestamp=timestamp,
                        )
                        for index in partitions
                    ),
                ),
            ),
        )
        found = {}
        for result in answer.topics[0].partitions:
            expect_success(
                f"read the offsets of {name}/{result.partition_index}", result.error_code, None
            )
            found[result.partition_index] = result.offset
        return found

    def configs(self, kind: int, name: str, *, documentation: bool = False) -> Any:
        """What a resource has, by DescribeConfigs; `kind` is Kafka's number of its type."""
        version = self.version(DESCRIBE_CONFIGS)
        resource = nested(request_class(DESCRIBE_CONFIGS.key, version), "resources")
        answer = self._exchange(
            DESCRIBE_CONFIGS,
            version,
            resources=(
                make(resource, resource_type=kind, resource_name=name, configuration_keys=None),
            ),
            include_synonyms=False,
            include_documentation=documentation,
        )
        (result,) = answer.results
        expect_success("describe the configuration", result.error_code, result.error_message)
        return result.configs

    def alter_configs(self, kind: int, name: str, changes: list[tuple[str, int, str]]) -> None:
        """Keys with an operation (0 sets, 1 removes) and a value, by IncrementalAlterConfigs."""
        version = self.version(ALTER_CONFIGS)
        resource = nested(request_class(ALTER_CONFIGS.key, version), "resources")
        config = nested(resource, "configs")
        answer = self._exchange(
            ALTER_CONFIGS,
            version,
            resources=(
                make(
                    resource,
                    resource_type=kind,
                    resource_name=name,
                    configs=tuple(
                        make(config, name=key, config_operation=operation, value=value)
                        for key, operation, value in changes
                    ),
                ),
            ),
            validate_only=False,
        )
        (result,) = answer.responses
        expect_success("alter the configuration", result.error_code, result.error_message)

    def cluster(self) -> Any:
        """The DescribeCluster answer."""
        answer = self._exchange(
            DESCRIBE_CLUSTER,
            self.version(DESCRIBE_CLUSTER),
            include_cluster_authorized_operations=False,
            endpoint_type=1,
        )
        expect_success("describe the cluster", answer.error_code, answer.error_message)
        return answer

    def ask(self, api: Api, **fields: Any) -> Any:
        """The answer to a request in the newest version that both sides speak."""
        return self._exchange(api, self.version(api), **fields)

    def item(self, api: Api, *path: str) -> Any:
        """The class of a nested struct of that request."""
        cls: Any = request_class(api.key, self.version(api))
        for field in path:
            cls = nested(cls, field)
        return cls

    def offers(self, api: Api) -> bool:
        """Whether the broker has the API."""
        return api.key in self._offered

    def version(self, api: Api) -> int:
        lowest, highest = self._offered.get(api.key, (0, -1))
        version = min(highest, api.max_version)
        if version < max(lowest, api.min_version):
            raise ClientError(f"The broker on {self._address} has no {api.name} that drayd speaks.")
        return version

    def _exchange(self, api: Api, version: int, **fields: Any) -> Any:
        request = make(request_class(api.key, version), **fields)
        self._correlation_id += 1
        head = _HEAD.pack(api.key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        pieces: list[Piece] = [head]
        if type(request).__header_schema__.__flexible__:
            pieces.append(b"\x00")
        write_message(pieces, request)
        # None of these requests carries records.
        body = b"".join(piece for piece in pieces if not isinstance(piece, Payload))
        try:
            self._socket.sendall(_SIZE.pack(len(body)) + body)
            (size,) = _SIZE.unpack(self._read(_SIZE.size))
            if not 4 <= size <= MAX_ANSWER_BYTES:
                raise ClientError(f"What answers on {self._address} is no Kafka broker.")
            answer = self._read(size)
        except OSError as error:
            reason = "it didn't answer in time" if isinstance(error, TimeoutError) else error
            raise ClientError(f"Lost the broker on {self._address}: {reason}.") from None
        return self._decode(api, version, answer)

    def _decode(self, api: Api, version: int, answer: memoryview) -> Any:
        response = response_class(api.key, version)
        try:
            (correlation_id,) = _SIZE.unpack_from(answer)
            if correlation_id != self._correlation_id:
                raise Malformed(f"an answer to request {correlation_id}")
            at = _SIZE.size
            if response.__header_schema__.__flexible__:
                at = skip_tagged_fields(answer, at)
            return read_message(response, answer, at)[0]
        except Malformed as error:
            raise ClientError(
                f"The broker on {self._address} sent a {api.name} answer that is none: {error}."
            ) from None

    def _read(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = self._socket.recv_into(data[filled:])
            if count == 0:
                raise ConnectionResetError("it closed the connection")
            filled += count
        return data


def expect_success(what: str, code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        reason = (message or code.name.replace("_", " ")).rstrip(".")
        raise ClientError(f"Can't {what}: {reason} ({code.name.upper()}).")
