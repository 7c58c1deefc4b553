"""Worker processes: started, killed, told to stop, and their logs read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox.demo.place import Place
from pgoutbox.demo.plan import DRAIN_GRACE, DRAIN_SOFT, LEASE, PUBLISH_TIMEOUT, RENEW, WORKERS
from pgoutbox.settings.load import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


ALLOWED = "PGOUTBOX_DATABASE__INSECURE"
"""Belongs to the DSN, which is given by hand."""


class WorkerProcess:
    """One ``pgoutbox run``, with its log in ``folder``."""

    def __init__(self, name: str, environ: dict[str, str], url: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.killed = False
        self._told_at = 0.0
        self._ended_at = 0.0
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "pgoutbox", "run", "--to", url],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                # Ctrl-C in a terminal goes to every process of the group; ours ends them itself.
                start_new_session=True,
            )
        threading.Thread(target=self._watch, name=f"watch {name}", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def told_to_stop(self) -> bool:
        """Whether its end is expected."""
        return self.killed or self._told_at > 0

    @property
    def drain_seconds(self) -> float:
        """From SIGTERM to the end of the process."""
        return self._ended_at - self._told_at if self._told_at and self._ended_at else 0.0

    def state(self, registered: Iterable[str]) -> str:
        """A word for people. ``registered``: the names that have a heartbeat."""
        if self.exit_code is not None:
            return "killed" if self.killed else f"exited with {self.exit_code}"
        if self.told_to_stop:
            return "drains"
        return "works" if self.name in registered else "starts"

    def kill(self) -> None:
        """SIGKILL: it can do nothing about it."""
        self.killed = True
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM: it drains."""
        self._told_at = time.monotonic()
        self._process.terminate()

    def _watch(self) -> None:
        self._process.wait()
        self._ended_at = time.monotonic()


class Told(NamedTuple):
    """What the workers say about themselves, added up."""

    reclaimed: int
    lease_lost: int
    handed_back: int


def environment(place: Place, name: str, *, slots: int) -> dict[str, str]:
    """What a worker is told. Of the settings around the demo only `ALLOWED` reaches it."""
    inherited = {
        key: value for key, value in os.environ.items() if key == ALLOWED or not _is_ours(key)
    }
    return inherited | {
        "PGOUTBOX_DSN": place.dsn,
        "PGOUTBOX_DATABASE__SCHEMA": place.schema,
        "PGOUTBOX_OWNER": name,
        "PGOUTBOX_MAX_IN_FLIGHT": str(slots),
        "PGOUTBOX_HTTP__PORT": "0",
        "PGOUTBOX_LOG__FORMAT": "json",
        "PGOUTBOX_LEASE__DURATION": str(LEASE),
        "PGOUTBOX_LEASE__RENEW": str(RENEW),
        "PGOUTBOX_DRAIN__SOFT": str(DRAIN_SOFT),
        "PGOUTBOX_DRAIN__GRACE": str(DRAIN_GRACE),
        "PGOUTBOX_DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": str(PUBLISH_TIMEOUT),
    }


def check(dsn: str) -> None:
    """Raise SettingsError when a worker would refuse the DSN."""
    environ = environment(Place(dsn, "public"), WORKERS[0], slots=1)
    load_settings(environ, to="noop://", need_destination=True)


def read_logs(logs: Iterable[Path]) -> Told:
    """Add up what stands in the logs."""
    counts: Counter[str] = Counter()
    for line in (line for log in logs for line in _lines(log)):
        match line.get("event"):
            case "reclaimed" | "lease lost":
                counts[line["event"]] += line["count"]
            case "drain ended":
                counts["handed back"] += line["handed_back"]
    return Told(counts["reclaimed"], counts["lease lost"], counts["handed back"])


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    for text in log.read_text(encoding="utf-8", errors="replace").splitlines():
        # A traceback is no JSON, and a killed worker may leave half a line.
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line


def _is_ours(variable: str) -> bool:
    return variable.upper().startswith("PGOUTBOX_")
