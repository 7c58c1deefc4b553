"""Start a worker in a process of its own and read what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.bench.place import Place

TIMEOUT = 600.0


def start(
    place: Place, url: str, count: int, settings: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A worker that delivers ``count`` messages to ``url`` and ends."""
    foreign = {name for name in os.environ if name.startswith("PGOUTBOX_")}
    environ = {name: value for name, value in os.environ.items() if name not in foreign}
    environ |= {
        "PGOUTBOX_DSN": place.dsn,
        "PGOUTBOX_DATABASE__SCHEMA": place.schema,
        "PGOUTBOX_DATABASE__INSECURE": "true",
        "PGOUTBOX_HTTP__PORT": "0",
        **(settings or {}),
    }
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "pgoutbox.bench.child", url, str(count)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )


def result(worker: subprocess.Popen[str]) -> dict[str, Any]:
    """What it measured. Raises RuntimeError when it failed or takes longer than ten minutes."""
    try:
        out, _ = worker.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        worker.kill()
        raise RuntimeError(f"the worker did not finish within {TIMEOUT:g} s") from None
    if worker.returncode:
        raise RuntimeError(f"the worker exited with {worker.returncode}")
    measured: dict[str, Any] = json.loads(out.splitlines()[-1])
    return measured
