"""``pgoutbox bench``: figures that anyone can repeat."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from psycopg.conninfo import conninfo_to_dict

from pgoutbox.cli.bench_scenarios import chosen, run_scenarios
from pgoutbox.cli.console import OK, complain, say, say_json
from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgoutbox.bench.measure import Figures


@click.command("bench")
@click.option(
    "--dsn",
    help="A database instead of a throw-away server. PGOUTBOX_DSN is not read: what is measured"
    " writes up to millions of rows.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1000),
    default=200_000,
    show_default=True,
    help="Messages of each throughput run.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=20.0,
    show_default=True,
    help="How long latency is measured.",
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME",
    help="What one claim costs, and how much is delivered, in this scenario; several, or `all`.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0, max=10, min_open=True),
    default=1.0,
    show_default=True,
    help="Multiplies the rows of the scenarios.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when a scenario falls short.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
def command(**given: Any) -> int:  # noqa: ANN401 - click's values, each of its own type
    """Measure throughput against the SQL floor of the same run, and latency; or scenarios.

    Works on a throw-away server, or in a schema of its own in the database of --dsn, which it
    drops afterwards. Give the machine some peace.
    """
    asked = Asked(**given)
    names = chosen(asked.scenarios) if asked.scenarios else []
    with _server(asked.dsn) as address:
        if not names:
            return _run(address, asked)
        return run_scenarios(
            address, names, scale=asked.scale, as_json=asked.as_json, strict=asked.strict
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options."""

    dsn: str | None
    count: int
    seconds: float
    scenarios: tuple[str, ...]
    scale: float
    strict: bool
    as_json: bool


def _run(address: str, asked: Asked) -> int:
    # Late, since `pgoutbox --help` need not pay for it.
    from pgoutbox.bench.measure import measure  # noqa: PLC0415
    from pgoutbox.bench.place import place  # noqa: PLC0415

    with place(address) as somewhere:
        figures = measure(somewhere, count=asked.count, seconds=asked.seconds, step=_step)
    _report(figures)
    if asked.as_json:
        say_json(figures.as_dict())
    return OK


@contextlib.contextmanager
def _server(dsn: str | None) -> Iterator[str]:
    if dsn is not None:
        named = conninfo_to_dict(dsn)
        where = f"database {named.get('dbname', '')!r} on {named.get('host', 'the local socket')}"
        complain(f"measuring in {where}, in a schema that is dropped afterwards")
        yield dsn
        return
    from pgoutbox.demo.embedded import EmbeddedServer  # noqa: PLC0415 - an extra

    complain("measuring on a throw-away PostgreSQL server of this machine, fsync on")
    with contextlib.ExitStack() as stack:
        try:
            server = EmbeddedServer()
            stack.callback(server.remove)
            server.start()
        except RuntimeError as error:
            raise PgOutboxError(f"{error}; or name a database with --dsn") from error
        yield server.dsn


def _step(title: str) -> Callable[[int], None]:
    complain(f"measuring: {title}")
    return lambda _count: None


def _report(figures: Figures) -> None:
    say(f"floor, one connection     {figures.floor_msgs_per_s:10,.0f} messages/s")
    say(f"floor, two connections    {figures.floor2_msgs_per_s:10,.0f} messages/s")
    say(f"worker, task per message  {figures.worker_msgs_per_s:10,.0f} messages/s")
    say(f"worker, batches           {figures.batch_msgs_per_s:10,.0f} messages/s")
    say(f"worker to floor           {figures.ratio:10.2f}")
    say(f"worker's CPU              {figures.cpu_us_per_msg:10.1f} us/message")
    say(f"commit to publish, p50    {figures.latency_p50_ms:10.2f} ms at 200 messages/s")
    say(f"commit to publish, p99    {figures.latency_p99_ms:10.2f} ms")
    say(f"worker's resident set     {figures.rss_mb:10.0f} MB")
