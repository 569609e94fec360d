"""Settings: kinds, sources, errors."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drayd.config import SETTINGS, ConfigError, Settings, sqlite_path
from drayd.config_sources import Given, load, nearest, split_assignment
from drayd.kinds import (
    INT64_MAX,
    Boolean,
    Choice,
    Folder,
    HostPort,
    Integer,
    Size,
    Url,
    parse_host_port,
)


def write(folder: Path, text: str) -> Path:
    path = folder / "dray.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def error_of(**arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**arguments)  # type: ignore[arg-type]  # each test gives what load takes
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


# The table


def test_names_follow_from_keys_and_are_unique() -> None:
    assert [setting.attribute for setting in SETTINGS.values()] == [
        field.name for field in fields(Settings)
    ]
    for key, setting in SETTINGS.items():
        assert setting.attribute == key.replace(".", "_")
    variables = {setting.variable for setting in SETTINGS.values()}
    assert len(variables) == len(SETTINGS)
    assert SETTINGS["wal.flush.linger_ms"].variable == "DRAY_WAL_FLUSH_LINGER_MS"


@pytest.mark.parametrize("key", SETTINGS)
def test_every_default_is_documented_and_survives_its_own_kind(key: str) -> None:
    setting = SETTINGS[key]
    assert setting.doc.endswith(".")
    shown = setting.show(setting.default)
    assert setting.kind.parse(shown) == setting.default
    config = load(flags=[Given(key, shown, "--set")])
    assert getattr(config.settings, setting.attribute) == setting.default
    assert config.sources[key] == "--set"


# Kinds


@given(st.integers(0, INT64_MAX))
def test_sizes_survive_being_shown(size: int) -> None:
    assert Size().parse(Size().show(size)) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8388608", 8388608),
        ("8MiB", 8388608),
        ("8 mib", 8388608),
        ("8MB", 8_000_000),
        ("1_000", 1000),
        ("0", 0),
        ("2GiB", 2**31),
        ("7b", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert Size().parse(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "8M", "-1", "1.5MiB", "8MiBs", "٣", "8 8"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        Size().parse(text)


def test_bounds_are_inclusive() -> None:
    kind = Integer(1, 3)
    assert [kind.parse("1"), kind.parse("3")] == [1, 3]
    with pytest.raises(ValueError, match="at least 1"):
        kind.parse("0")
    with pytest.raises(ValueError, match="at most 3"):
        kind.parse("4")
    with pytest.raises(ValueError, match="whole number"):
        kind.parse("2.0")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", HostPort("localhost", 9092)),
        (":9092", HostPort("", 9092)),
        ("0.0.0.0:0", HostPort("0.0.0.0", 0)),
        ("[::1]:65535", HostPort("::1", 65535)),
        ("[fe80::1%eth0]:1", HostPort("fe80::1%eth0", 1)),
    ],
)
def test_addresses(text: str, address: HostPort) -> None:
    assert parse_host_port(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost", "9092", "localhost:", "localhost:http", "localhost:65536", "::1:9092"),
        *("[::1]", "[::1]9092", "[localhost]:1", "kafka://localhost:9092", "a b:1", "h:-1", "h:٣"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_host_port(text)


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = parse_host_port(text)
    except ValueError:
        return
    assert 0 <= address.port <= 65535


def test_words() -> None:
    assert [Boolean().parse(word) for word in ("true", "False", "yes", "off")] == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(ValueError, match="true or false"):
        Boolean().parse("1")
    choice = Choice(("CreateTime", "LogAppendTime"))
    assert choice.parse("logappendtime") == "LogAppendTime"
    with pytest.raises(ValueError, match="one of CreateTime, LogAppendTime"):
        choice.parse("now")


def test_urls_and_folders() -> None:
    kind = Url(("file", "s3"))
    assert kind.parse("s3://bucket/prefix") == "s3://bucket/prefix"
    assert kind.parse("") == ""
    for text in ("ftp://x", "s3", "/var/lib", "s3:/x"):
        with pytest.raises(ValueError, match="file://, s3://"):
            kind.parse(text)
    assert Folder().parse("~/dray") == Path.home() / "dray"
    for text in ("", " ", "a\0b", "~no-such-user-here/x"):
        with pytest.raises(ValueError, match="must be"):
            Folder().parse(text)


# Sources


def test_defaults() -> None:
    config = load()
    assert config.settings == Settings()
    assert set(config.sources.values()) == {"default"}
    assert config.settings.listen == HostPort("localhost", 9092)


def test_later_sources_win_and_are_remembered(tmp_path: Path) -> None:
    file = write(tmp_path, "num.partitions: 2\nlog.level: debug\nzone: a\n")
    config = load(
        config_file=file,
        environ={"DRAY_NUM_PARTITIONS": "3", "DRAY_ZONE": "b", "HOME": "/root"},
        flags=[Given("zone", "c", "--zone"), Given("zone", "d", "--set")],
    )
    assert config.settings.num_partitions == 3
    assert config.settings.log_level == "debug"
    assert config.settings.zone == "d"
    assert config.sources["num.partitions"] == "DRAY_NUM_PARTITIONS"
    assert config.sources["log.level"] == f"{file}:2"
    assert config.sources["zone"] == "--set"
    assert config.sources["listen"] == "default"


def test_yaml_may_be_nested_flat_or_both(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        storage: s3://bucket
        storage.delay: {put_ms: 20}
        wal:
          flush:
            max_bytes: 1MiB
            linger_ms: 7
          marker.range: 8
        advertise:
        auto.create.topics.enable: no
        """,
    )
    settings = load(config_file=file).settings
    assert settings.storage == "s3://bucket"
    assert settings.storage_delay_put_ms == 20
    assert settings.wal_flush_max_bytes == 1024 * 1024
    assert settings.wal_flush_linger_ms == 7
    assert settings.wal_marker_range == 8
    assert settings.advertise is None
    assert settings.auto_create_topics_enable is False


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load(config_file=write(tmp_path, "# nothing\n")).settings == Settings()


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, "zone: from-file")
    assert load(environ={"DRAY_CONFIG": str(file)}).settings.zone == "from-file"
    other = tmp_path / "other.yaml"
    other.write_text("zone: from-flag", encoding="utf-8")
    config = load(config_file=other, environ={"DRAY_CONFIG": str(file)})
    assert config.settings.zone == "from-flag"


def test_kubernetes_service_variables_are_not_ours() -> None:
    environ = {
        "DRAY_PORT": "tcp://10.0.0.1:9092",
        "DRAY_PORT_9092_TCP_ADDR": "10.0.0.1",
        "DRAY_SERVICE_HOST": "10.0.0.1",
        "DRAY_KAFKA_SERVICE_PORT_HTTP": "8092",
    }
    assert load(environ=environ).settings == Settings()


# Errors: one sentence that names the key, what is wrong, and the nearest key


def test_unknown_keys_name_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path, "zone: a\nwal:\n  flush:\n    lingerMs: 5\n")
    assert error_of(config_file=file) == (
        f'Unknown setting "wal.flush.lingerMs" ({file}:4); the nearest one is wal.flush.linger_ms.'
    )
    assert error_of(environ={"DRAY_NUM_PARTITION": "1"}) == (
        "Unknown setting in the environment variable DRAY_NUM_PARTITION; "
        "the nearest one is DRAY_NUM_PARTITIONS."
    )
    assert error_of(flags=[split_assignment("partitions=3")]) == (
        'Unknown setting "partitions" (--set); the nearest one is num.partitions.'
    )


@given(st.text(min_size=1))
def test_there_is_always_a_nearest_key(word: str) -> None:
    assert nearest(word, SETTINGS) in SETTINGS


@pytest.mark.parametrize("key", SETTINGS)
def test_the_nearest_key_of_a_key_is_itself(key: str) -> None:
    assert nearest(key.upper().replace(".", "-"), SETTINGS) == key


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("num.partitions=0", 'num.partitions (--set) must be at least 1, not "0".'),
        ("log.level=loud", "log.level (--set) must be one of debug, info, warning, error, not"),
        ("listen=9092", "listen (--set) must be HOST:PORT, such as localhost:9092"),
        ("advertise=0.0.0.0:9092", "advertise (--set) must be an address that clients can"),
        ("metadata=/x", "metadata (--set) must be a URL that starts with one of sqlite://"),
        ("metadata=sqlite://x.db", "metadata must be sqlite:///absolute/path.db"),
        ("zone=a/b", "zone (--set) must be at most 64 letters"),
        ("wal.flush.linger_ms=soon", "wal.flush.linger_ms (--set) must be a whole number of"),
    ],
)
def test_bad_values_are_named(assignment: str, sentence: str) -> None:
    assert error_of(flags=[split_assignment(assignment)]).startswith(sentence)


def test_values_that_do_not_go_together() -> None:
    flags = [split_assignment("wal.flush.min_linger_ms=6")]
    assert "must not be larger than wal.flush.linger_ms (5)" in error_of(flags=flags)
    flags = [split_assignment("queued.max.request.bytes=1MiB")]
    assert "must be at least socket.request.max.bytes" in error_of(flags=flags)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("zone: a\nzone: b\n", "zone is set twice"),
        ("wal.marker.range: 1\nwal: {marker: {range: 2}}\n", "wal.marker.range is set twice"),
        ("listen: [a, b]\n", "listen"),
        ("- zone\n", "key: value"),
        ("zone: {\n", "is not YAML"),
        ("zone: *nothing\n", "is not YAML"),
        ("? [a]\n: b\n", "plain text"),
        ("wal: &x\n  flush: *x\n", "contains itself"),
        ("zone: \x07\n", "is not YAML"),
        ("zone: a\n---\nzone: b\n", "is not YAML"),
    ],
)
def test_files_that_make_no_sense(tmp_path: Path, text: str, part: str) -> None:
    assert part in error_of(config_file=write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in error_of(config_file=tmp_path / "absent.yaml")
    assert "Is a directory" in error_of(config_file=tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in error_of(config_file=binary)


@pytest.mark.parametrize("text", ["", "zone", "=a"])
def test_set_needs_an_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match="--set needs key=value"):
        split_assignment(text)


def test_set_keeps_equals_signs_of_the_value() -> None:
    assert split_assignment("storage=s3://b?x=y") == Given("storage", "s3://b?x=y", "--set")


# What follows from settings


def test_the_embedded_default_is_in_the_data_folder(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "a folder%")
    assert sqlite_path(settings.metadata_url) == tmp_path / "a folder%" / "metadata.db"
    assert settings.storage_url.startswith("file:///")
    assert settings.storage_url.endswith("/a%20folder%25/objects")
    assert settings.uses_data_dir
    assert Settings(storage="memory://").uses_data_dir
    assert not Settings(storage="memory://", metadata="memory://").uses_data_dir
    assert Settings(storage="s3://b").storage_url == "s3://b"


def test_what_is_advertised() -> None:
    assert Settings().advertised(1234) == HostPort("localhost", 1234)
    explicit = Settings(advertise=HostPort("kafka.example.org", 0))
    assert explicit.advertised(1234) == HostPort("kafka.example.org", 1234)
    explicit = Settings(advertise=HostPort("kafka.example.org", 443))
    assert explicit.advertised(1234) == HostPort("kafka.example.org", 443)
    everywhere = Settings(listen=HostPort("0.0.0.0", 9092)).advertised(9092)
    assert not everywhere.is_wildcard
