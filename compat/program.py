"""A client program as a running process that is asked one job after the other.

The process starts with the first job and is started anew after it died or hung: then that job is
an error and the next one begins afresh. The protocol is in ``compat/clients/job.py``.
"""

import json
import subprocess
import tempfile
import threading
from types import TracebackType
from typing import Any, Self

from compat import toolchain

JOB_TIMEOUT_S = 60.0
STDERR_CHARS = 600


class JobFailed(Exception):
    """The client reported an error, or its process died or hung."""


class Program:
    """One client program."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  closed with it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()
        self._stderr.close()

    def ask(self, do: str, bootstrap: str = "", **case: Any) -> Any:
        """The client's answer to one job."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(JOB_TIMEOUT_S, process.kill)
        timer.start()
        try:
            job = {"do": do, "bootstrap": bootstrap, "case": case}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            hung = not timer.is_alive()
            timer.cancel()
        if not line:
            self.close()
            what = f"had no answer within {JOB_TIMEOUT_S:.0f} s" if hung else "died"
            raise JobFailed(f"the process {what}: {self._said()}")
        answer = json.loads(line)
        if "error" in answer:
            raise JobFailed(str(answer["error"]))
        return answer["ok"]

    def close(self) -> None:
        """End the process, gently if it listens."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            process.wait(5)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        process.stdout.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    text=True,
                    cwd=toolchain.ROOT,
                )
            except OSError as problem:
                raise JobFailed(f"{self._command[0]} can't be started: {problem}") from problem
        return self._process

    def _said(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().strip()[-STDERR_CHARS:] or "it printed nothing"
