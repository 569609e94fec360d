"""Start and stop brokers as processes: Apache Kafka (as it comes, or syncing every batch) and Dray.

A server runs in its own process group with its output in a log file; ``stop`` sends SIGTERM to
that group and, after a grace period, SIGKILL to the same group and to nothing else. The data
folder outlives ``stop``, so ``start`` after it is a restart with the same data.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from compat import toolchain
from compat.wire import Address, Wire, WireError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.01

KAFKA_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class ServerFailed(Exception):
    """The server did not start, or died; the message holds the end of its log."""


class Usage(NamedTuple):
    """What a server has used since it started."""

    cpu_s: float
    rss_bytes: int
    peak_rss_bytes: int


class Server(ABC):
    """A broker process and its data folder."""

    name = "server"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.address = Address("127.0.0.1", 0)
        self.start_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return str(self.address)

    @property
    def pid(self) -> int:
        """The broker's process id."""
        if self._process is None:
            raise ServerFailed(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait for its first Metadata answer; ``start_s`` is how long that took."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        command = self.command()
        began = time.perf_counter()
        log_size = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=toolchain.ROOT,
            )
        try:
            while not self._answers(log_size):
                if time.perf_counter() - began > START_TIMEOUT_S:
                    raise ServerFailed(f"{self.name} gave no answer.\n{self.log_tail()}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = self._process.wait(POLL_S)
                    raise ServerFailed(f"{self.name} ended with {code}.\n{self.log_tail()}")
        except BaseException:
            self.stop()
            raise
        self.start_s = time.perf_counter() - began

    def stop(self) -> None:
        """SIGTERM, then SIGKILL, to the server's own process group."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(
                f"{self.name} did not stop within {STOP_TIMEOUT_S:.0f} s: killed", file=sys.stderr
            )
        # Children that outlived the leader are still in its group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def restart(self) -> None:
        """Stop and start with the same data."""
        self.stop()
        self.start()

    def usage(self) -> Usage:
        """CPU seconds and memory of the process and its living children."""
        cpu_s, rss, peak = 0.0, 0, 0
        for pid in _tree(self.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                cpu_s += _cpu_s(pid)
                status = Path(f"/proc/{pid}/status").read_text()
                rss += _status_bytes(status, "VmRSS")
                peak += _status_bytes(status, "VmHWM")
        return Usage(cpu_s, rss, peak)

    def reset_peak(self) -> None:
        """Let VmHWM start again from the present size."""
        for pid in _tree(self.pid):
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def log_tail(self, lines: int = 30) -> str:
        """The end of what the server printed."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    @abstractmethod
    def prepare(self) -> None:
        """What must happen before each start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line."""

    @abstractmethod
    def find_address(self, output: str) -> Address | None:
        """The address to connect to, from what was printed since the start; None: not yet known."""

    def _answers(self, log_size: int) -> bool:
        with self.log.open("rb") as log:
            log.seek(log_size)
            output = log.read().decode(errors="replace")
        address = self.find_address(output)
        if address is None:
            return False
        try:
            with Wire(address, timeout_s=5.0) as wire:
                wire.api_versions()
                wire.metadata([])
        except (OSError, WireError):
            return False
        self.address = address
        return True


class Kafka(Server):
    """Apache Kafka: one KRaft node with a 1 GB heap."""

    name = "kafka"

    def __init__(self, folder: Path, *, synced: bool, settings: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.name = "kafka-synced" if synced else "kafka-default"
        self._synced = synced
        self._settings = settings
        self._properties = folder / "server.properties"
        self._listen: Address | None = None

    def prepare(self) -> None:
        if self._listen is not None:
            return
        port, controller_port = free_ports(2)
        self._listen = Address("127.0.0.1", port)
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}",
            f"listeners=PLAINTEXT://{self._listen},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners=PLAINTEXT://{self._listen}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.folder / 'data'}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *self._settings,
        ]
        if self._synced:
            lines.append("log.flush.interval.messages=1")
        self._properties.write_text("\n".join(lines) + "\n")
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # With "=": an id may begin with a dash.
        identity = f"--cluster-id={cluster_id}"
        arguments = ("format", "--standalone", identity, "-c", str(self._properties))
        done = subprocess.run(
            toolchain.java("kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"Kafka's storage was not formatted:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return toolchain.java("kafka.Kafka", str(self._properties), jvm=KAFKA_JVM)

    def find_address(self, output: str) -> Address | None:
        return self._listen


class Dray(Server):
    """``drayd start`` on its embedded defaults, plus ``--set`` settings."""

    name = "dray"

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self._settings = settings

    def prepare(self) -> None:
        """Nothing: it makes its own folder."""

    def command(self) -> list[str]:
        script = Path(sys.executable).with_name("drayd")
        drayd = [str(script)] if script.exists() else [sys.executable, "-m", "drayd"]
        extras = [argument for setting in self._settings for argument in ("--set", setting)]
        return [
            *(*drayd, "start", "--data-dir", str(self.folder / "data")),
            *("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"),
            *extras,
        ]

    def find_address(self, output: str) -> Address | None:
        found = re.search(r"Kafka clients\s+127\.0\.0\.1:(\d+)", output)
        return Address("127.0.0.1", int(found[1])) if found else None


def make(kind: str, folder: Path, settings: Sequence[str] = ()) -> Server:
    """A server by name: ``dray``, ``kafka-synced`` or ``kafka-default`` (also ``kafka``)."""
    if kind == "dray":
        return Dray(folder, settings)
    return Kafka(folder, synced=kind == "kafka-synced", settings=settings)


@contextlib.contextmanager
def scratch(prefix: str = "dray-compat-") -> Iterator[Path]:
    """A folder under build/ that is removed at the end; the data lie on the project's own disk."""
    base = toolchain.BUILD / "scratch"
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def exit_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, so that the servers are stopped."""

    def leave(signum: int, _frame: object) -> None:
        sys.exit(128 + signum)

    signal.signal(signal.SIGTERM, leave)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _tree(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pids.extend(map(int, task.read_text().split()))
    return pids


def _cpu_s(pid: int) -> float:
    # The command's name may hold spaces and brackets: count fields from its closing bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own_and_reaped = sum(map(int, fields[11:15]))
    return own_and_reaped / os.sysconf("SC_CLK_TCK")


def _status_bytes(status: str, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
