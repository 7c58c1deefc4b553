"""The postgres tier on every server that is supported: ``python -m tests.support.matrix 14 15``.

Without versions, on all. Each server is that of PGOUTBOX_TEST_DSN_<VERSION>, else a container where
Docker answers. With PGOUTBOX_TEST_POOLER, the ``host:port`` of a PgBouncer in transaction mode
before the server of PGOUTBOX_TEST_DSN, that is one more.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ("14", "15", "16", "17", "18")
POOLER = "pgbouncer"
SETTINGS = "-c fsync=off -c track_commit_timestamp=on -c max_prepared_transactions=10"


class Leg(NamedTuple):
    """How one of them ended."""

    name: str
    said: str
    seconds: float


@contextlib.contextmanager
def server(version: str) -> Iterator[str | None]:
    """Its DSN; None where there is none to be had."""
    if given := os.environ.get(f"PGOUTBOX_TEST_DSN_{version}"):
        yield given
        return
    from docker.errors import DockerException  # noqa: PLC0415 - slow, and mostly not needed
    from testcontainers.community.postgres import PostgresContainer  # noqa: PLC0415

    try:
        container = PostgresContainer(f"postgres:{version}", driver=None)
        container.with_command(f"postgres {SETTINGS}").start()
    except (DockerException, OSError):
        yield None
        return
    try:
        yield container.get_connection_url()
    finally:
        container.stop()


def run_tier(name: str, dsn: str | None, pooler: str) -> Leg:
    """Run the tier."""
    if dsn is None:
        return Leg(name, f"no server: set PGOUTBOX_TEST_DSN_{name}, or start Docker", 0.0)
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "tests/postgres", "tests/races"]
    chosen = {"PGOUTBOX_TEST_DSN": dsn, "PGOUTBOX_TEST_POOLER": pooler}
    code = subprocess.run(command, env=os.environ | chosen, check=False).returncode
    return Leg(name, "failed" if code else "passed", time.monotonic() - began)


def main() -> int:
    """All legs one after the other; 1 when not all of them passed."""
    legs = []
    for version in sys.argv[1:] or VERSIONS:
        with server(version) as dsn:
            legs.append(run_tier(version, dsn, ""))
    pooler, dsn = os.environ.get("PGOUTBOX_TEST_POOLER"), os.environ.get("PGOUTBOX_TEST_DSN")
    if pooler and dsn:
        legs.append(run_tier(POOLER, dsn, pooler))
    for leg in legs:
        print(f"{leg.name:>10}  {leg.seconds:6.0f} s  {leg.said}")  # noqa: T201 - its result
    return 0 if all(leg.said == "passed" for leg in legs) else 1


if __name__ == "__main__":
    sys.exit(main())
