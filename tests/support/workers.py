"""Workers as people run them: processes, with settings in their environment and logs to read."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.roles import as_worker, through_pooler

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0

QUICK = {
    "PGOUTBOX_LOG__FORMAT": "json",
    "PGOUTBOX_DATABASE__STATEMENT_TIMEOUT": "1",
    "PGOUTBOX_DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "1",
    "PGOUTBOX_DRAIN__SOFT": "2",
    "PGOUTBOX_DRAIN__GRACE": "12",
    "PGOUTBOX_LEASE__DURATION": "6",
    "PGOUTBOX_LEASE__RENEW": "2",
}
"""Settings that are as short as their rules allow."""
GRACE = 12.0

ENTRY_POINTS = """\
[pgoutbox.publishers]
stubborn = tests.support.stubborn:open_stubborn
"""
METADATA = "Metadata-Version: 2.1\nName: pgoutbox-stubborn\nVersion: 1\n"


class Exit(NamedTuple):
    """How a worker ended."""

    code: int
    seconds: float
    """From the first signal to the end."""


class WorkerProcess:
    """``pgoutbox run`` as a process; leaving the context kills it."""

    def __init__(self, dsn: str, to: str, **settings: str) -> None:
        """``settings`` are written as in ``DRAIN__SOFT="4"`` and come on top of `QUICK`."""
        self.dsn = dsn
        self.port = free_port()
        chosen = {f"PGOUTBOX_{name}": value for name, value in settings.items()}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PGOUTBOX_")}
        self._environ: dict[str, str] = {
            **inherited,
            **QUICK,
            "PGOUTBOX_DSN": through_pooler(as_worker(dsn)),
            "PGOUTBOX_HTTP__PORT": str(self.port),
            "PYTHONFAULTHANDLER": "1",
            **chosen,
        }
        self._command = [sys.executable, "-m", "pgoutbox", "run", "--to", to]
        self._process: subprocess.Popen[str] | None = None
        self._signalled = self._ended = 0.0
        self.lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def with_path(self, *folders: Path) -> Self:
        """Let it import from these folders, and from the tests."""
        self._environ["PYTHONPATH"] = os.pathsep.join(map(str, (*folders, ROOT)))
        return self

    def start(self) -> Self:
        """Start it; it is not ready yet."""
        self._process = subprocess.Popen(
            self._command, env=self._environ, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self._reader.start()
        return self

    def started(self) -> Self:
        """Start it and return once it is about to claim."""
        try:
            self.start().wait_for("worker started")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        assert self._process is not None
        return self._process.poll() is None

    def signal(self, number: signal.Signals = signal.SIGTERM) -> Self:
        """Send it a signal; the first one starts the clock of `exit`."""
        self._signalled = self._signalled or time.monotonic()
        os.kill(self.pid, number)
        return self

    def exit(self, within: float = GRACE) -> Exit:
        """How it ended. Killed, as the platform does it, ``within`` seconds after the signal."""
        assert self._process is not None
        left = self._signalled + within - time.monotonic()
        try:
            code = self._process.wait(max(left, 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join()
        return Exit(code, self._ended - self._signalled)

    def ended(self) -> int:
        """The code with which it ends by itself."""
        assert self._process is not None
        code = self._process.wait(PATIENCE)
        self._reader.join()
        return code

    def stop(self) -> Exit:
        """SIGTERM, and how it ended."""
        return self.signal().exit()

    def wait_for(
        self, event: str, patience: float = PATIENCE, *, after: int = 0, **fields: object
    ) -> dict[str, Any]:
        """The first log line of this event with these fields, from line number ``after`` on."""

        def found() -> dict[str, Any] | None:
            wanted = fields | {"event": event}
            lines = (line for line in self.lines[after:] if wanted.items() <= line.items())
            return next(lines, None)

        with self._changed:
            line = self._changed.wait_for(found, patience)
        if line is None:
            raise AssertionError(f"no {event!r} with {fields} in {patience:g} s:\n{self}")
        return line

    def events(self, event: str) -> list[dict[str, Any]]:
        """All log lines of this event so far."""
        return [line for line in self.lines if line["event"] == event]

    def get(self, path: str) -> int:
        """The status that the probe answers with; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def cpu_seconds(self) -> float:
        """The processor time that it has used so far (from Linux's /proc)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines[-30:]))

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for text in self._process.stderr:
            try:
                line = json.loads(text)
            except ValueError:
                line = {"event": "raw", "text": text.rstrip()}
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        self._ended = time.monotonic()


def stubborn_package(folder: Path) -> Path:
    """Install the publishers of `tests.support.stubborn` into a folder for PYTHONPATH."""
    info = folder / "pgoutbox_stubborn-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def free_port() -> int:
    """A port that nobody listens on, below those that the system hands out meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        try:
            socket.create_server(("", port)).close()
        except OSError:
            continue
        return port
