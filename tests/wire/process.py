"""A broker in a process of its own, on its own data folder."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.wire.client import Address

END_WITHIN_S = 60.0
HTTP_WITHIN_S = 60.0

_ROOT = Path(__file__).parents[2]

_KAFKA = re.compile(r"Kafka clients +(\S+):(\d+)")
_HTTP = re.compile(r"Health +http://([^/:]+):(\d+)/")


class BrokerProcess:
    def __init__(self, process: subprocess.Popen[str], kafka: Address, http: Address) -> None:
        self._process = process
        self.address = kafka
        self.http = http

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Waits for the end; the exit code, negative for a signal."""
        return await asyncio.to_thread(self._process.wait, END_WITHIN_S)

    async def metrics(self) -> str:
        return await asyncio.to_thread(self._get_metrics)

    def _get_metrics(self) -> str:
        url = f"http://{self.http[0]}:{self.http[1]}/metrics"
        with urllib.request.urlopen(url, timeout=HTTP_WITHIN_S) as answer:
            body: bytes = answer.read()
            return body.decode()


@contextmanager
def broker(
    data_dir: Path, *settings: str, command: Sequence[str] = ("drayd",)
) -> Iterator[BrokerProcess]:
    """Runs `python -m command… start` on the folder until the block ends; then kills it.

    What it logs goes to `broker.log` beside the folder, for whoever looks into a failure."""
    arguments = [sys.executable, "-m", *command, "start", "--data-dir", str(data_dir)]
    arguments += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    for setting in settings:
        arguments += ["--set", setting]
    with (
        (data_dir.parent / "broker.log").open("ab") as log,
        subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=log, text=True, cwd=_ROOT
        ) as process,
    ):
        assert process.stdout is not None
        try:
            banner = ""
            for line in process.stdout:
                banner += line
                if "Try " in line:
                    break
            kafka, http = _KAFKA.search(banner), _HTTP.search(banner)
            assert kafka and http, f"the broker didn't start: {banner!r}"
            yield BrokerProcess(process, (kafka[1], int(kafka[2])), (http[1], int(http[2])))
        finally:
            if process.poll() is None:
                process.kill()
