"""The drill of tests/races/test_lane_order.py at any size: `python -m benchmarks.order`.

Exits with 1 when any promise about order was broken, after looking for a smaller plan that breaks
it too. A seed decides what is enqueued and which publishes fail; who comes first is up to the
machine, so a failure may take several runs of its seed to come back.
"""

# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psycopg
from psycopg.conninfo import make_conninfo

from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from tests.support.order_drill import Plan, drill, shrunk

if TYPE_CHECKING:
    from pgoutbox.dispatch.finalize_statements import Mode
    from tests.support.order_oracle import Verdict

# The commit order comes from the server's own timestamps.
SETTINGS = {"track_commit_timestamp": "on", "fsync": "off", "synchronous_commit": "off"}
PATIENCE = 300.0
MODES: tuple[Mode, ...] = ("keep", "delete", "archive")


@click.command()
@click.option("--messages", default=200_000, show_default=True)
@click.option("--keys", default=200, show_default=True, help="Lanes of each destination.")
@click.option("--disturbances", default=60, show_default=True, help="Kills, stops and signals.")
@click.option("--faults", default=1.0, show_default=True, help="How often publishes fail.")
@click.option("--retention", type=click.Choice(MODES), default="keep", show_default=True)
@click.option("--processes", default=2, show_default=True, help="Workers that may be killed.")
@click.option("--threads", default=2, show_default=True, help="Workers that may not.")
@click.option("--seed", type=int, help="Any, if not given; it is printed.")
@click.option("--shrink", default=300.0, show_default=True, help="Seconds to look for less.")
def order(seed: int | None, shrink: float, **sizes: Any) -> None:  # noqa: ANN401 - click's
    """Let workers be killed and publishers fail, and check that every lane kept its order."""
    chosen = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - no secret
    plan = Plan(seed=chosen, patience=PATIENCE, **sizes)
    click.echo(plan)
    verdict, smaller = judged(plan, shrink)
    click.echo(verdict)
    if verdict.problems:
        click.echo(smaller)
        sys.exit(1)


def judged(plan: Plan, shrink: float) -> tuple[Verdict, str]:
    """Run it; where it fails, the smallest plan that was seen to fail within ``shrink`` seconds."""
    server = EmbeddedServer(settings=SETTINGS)
    try:
        server.start()
        began = time.monotonic()
        verdict = run(server.dsn, plan)
        click.echo(f"judged after {time.monotonic() - began:.0f} s")
        if not verdict.problems:
            return verdict, ""
        smallest, found = shrunk(plan, lambda one: run(server.dsn, one), verdict, shrink)
        return verdict, f"the smallest that was seen to fail: {smallest}\n{found}"
    finally:
        server.remove()


def run(server: str, plan: Plan) -> Verdict:
    """The drill in a database of its own."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS drill WITH (FORCE)")
        admin.execute("CREATE DATABASE drill")
    dsn = make_conninfo(server, dbname="drill")
    with psycopg.connect(dsn) as conn:
        apply(conn, schema="public")
    with tempfile.TemporaryDirectory(prefix="pgoutbox-drill-") as folder:
        return drill(plan, dsn, Path(folder))


if __name__ == "__main__":
    order()
