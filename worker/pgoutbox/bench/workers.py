"""Start a worker in a process of its own and read what it measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox.bench.claiming import PATIENCE, per_100_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.bench.claiming import Timed
    from pgoutbox.bench.place import Place

# Room to claim 500 while 500 are published and 500 finalized: what the floor has by taking turns.
IN_FLIGHT = {"PGOUTBOX_MAX_IN_FLIGHT": "1500"}
MARGIN = 60.0
"""Seconds beside its patience that the process may take, to start and to drain."""


class Worked(NamedTuple):
    """What a worker came to."""

    claims: list[Timed]
    """As the worker timed them, while its finalizes ran beside them."""
    finished: int
    seconds: float
    progress: list[Timed]
    """After each finalize: how many were finished so far, and the seconds since the first claim."""

    @property
    def claim_ms_per_100(self) -> float | None:
        """Milliseconds for 100 messages on the average; None without any."""
        return per_100_ms(self.claims) if self.claims else None

    @property
    def msgs_per_s(self) -> float:
        """From before the first claim to the last finalize; 0 when nothing was finished."""
        return self.finished / self.seconds if self.finished else 0.0


def work(
    place: Place, count: int, url: str = "noop://", settings: Mapping[str, str] | None = None
) -> Worked:
    """Let one worker finish ``count`` messages, or as many as it can within `PATIENCE`."""
    return worked(result(start(place, url, count, IN_FLIGHT | dict(settings or {}))))


def start(
    place: Place, url: str, count: int, settings: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A worker that delivers ``count`` messages to ``url`` and ends."""
    foreign = {name for name in os.environ if name.startswith(("PGOUTBOX_", "OTEL_"))}
    environ = {name: value for name, value in os.environ.items() if name not in foreign}
    environ |= {
        "PGOUTBOX_DSN": place.dsn,
        "PGOUTBOX_DATABASE__SCHEMA": place.schema,
        "PGOUTBOX_DATABASE__INSECURE": "true",
        "PGOUTBOX_HTTP__PORT": "0",
        **(settings or {}),
    }
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "pgoutbox.bench.child", url, str(count), str(PATIENCE)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )


def worked(measured: dict[str, Any]) -> Worked:
    """From what `result` returns."""
    claims = [(int(number), float(seconds)) for number, seconds in measured["claims"]]
    progress = [(int(number), float(at)) for number, at in measured["progress"]]
    return Worked(claims, measured["finished"], measured["seconds"], progress)


def stop(worker: subprocess.Popen[str]) -> dict[str, Any]:
    """Drain it now, and what it measured until then."""
    worker.send_signal(signal.SIGTERM)
    return result(worker)


def result(worker: subprocess.Popen[str]) -> dict[str, Any]:
    """What it measured, once it has ended. Raises RuntimeError when it failed or hangs."""
    try:
        out, _ = worker.communicate(timeout=PATIENCE + MARGIN)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the worker did not end within {PATIENCE + MARGIN:g} s") from None
    finally:
        worker.kill()
        worker.wait()
    if worker.returncode:
        raise RuntimeError(f"the worker exited with {worker.returncode}")
    measured: dict[str, Any] = json.loads(out.splitlines()[-1])
    return measured
