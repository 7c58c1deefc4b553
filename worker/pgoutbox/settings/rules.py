"""Rules that no single value can break: how settings fit together, and what is merely unwise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pgoutbox.dispatch.drain import DrainTimes
from pgoutbox.problem import Problem
from pgoutbox.settings.destination_rules import destination_problems
from pgoutbox.settings.dsn import dsn_place, dsn_problems
from pgoutbox.settings.names import variable
from pgoutbox.settings.watched import watched_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pgoutbox.settings.model import Settings

# Connections: with less than the first a finalize waits for a claim; with the second nothing does.
MIN_CONNECTIONS = 2
SIDE_BY_SIDE = 3


def broken_rules(settings: Settings, environ: Mapping[str, str]) -> Iterator[Problem]:
    """What keeps a worker with these settings from keeping its promises."""
    yield from _connections(settings, environ)
    yield from _lease(settings)
    yield from _drain(settings)
    for name, destination in settings.destinations.items():
        yield from destination_problems(settings, name, destination)
    for name, database in settings.databases.items():
        field, insecure = variable(("databases", name)), settings.database.insecure
        yield from watched_problems(field, name, database, environ, insecure=insecure)
    yield from _watched_twice(settings, environ)


def warnings(settings: Settings) -> list[Problem]:
    """What works, but is probably not meant."""
    found = []
    database = settings.database
    if database.pool_max < SIDE_BY_SIDE:
        found.append(
            Problem(
                field="PGOUTBOX_DATABASE__POOL_MAX",
                rule="leaves no connection for the renewal while a claim and a finalize run",
                value=str(database.pool_max),
                advice=f"{SIDE_BY_SIDE} is better.",
            )
        )
    listens = settings.wakeup.mode != "poll"
    if listens and database.pooler == "transaction" and settings.listen_dsn is None:
        found.append(
            Problem(
                field="PGOUTBOX_LISTEN_DSN",
                rule="is not set, and no notification passes a pooler in transaction mode: polling"
                " only",
                advice="Give it a DSN that reaches PostgreSQL itself, or set"
                " PGOUTBOX_WAKEUP__MODE=poll.",
            )
        )
    if database.insecure:
        found.append(
            Problem(
                field="PGOUTBOX_DATABASE__INSECURE",
                rule="allows connections that nobody verifies",
                value="true",
                advice="Use sslmode=verify-full wherever the connection leaves the machine.",
            )
        )
    if not settings.destinations:
        found.append(no_destination())
    return found


def no_destination() -> Problem:
    """A worker has nothing to do without one; the other commands can."""
    return Problem(
        field=variable(("destinations", "<NAME>", "url")),
        rule="is not set for any destination, so a worker could publish nothing",
        advice="Set PGOUTBOX_DESTINATIONS__DEFAULT__URL, or say where with --to URL.",
    )


def _connections(settings: Settings, environ: Mapping[str, str]) -> Iterator[Problem]:
    insecure = settings.database.insecure
    yield from dsn_problems(
        "PGOUTBOX_DSN", settings.dsn.get_secret_value(), environ, insecure=insecure
    )
    if settings.listen_dsn is not None:
        yield from dsn_problems(
            "PGOUTBOX_LISTEN_DSN",
            settings.listen_dsn.get_secret_value(),
            environ,
            insecure=insecure,
        )
    elif settings.database.pooler == "transaction" and settings.wakeup.mode == "notify":
        yield Problem(
            field="PGOUTBOX_WAKEUP__MODE",
            rule="insists on notifications, and none passes a pooler in transaction mode",
            value="notify",
            advice="Set PGOUTBOX_LISTEN_DSN to a DSN that reaches PostgreSQL itself, or choose auto"
            " or poll.",
            others=("PGOUTBOX_DATABASE__POOLER", "PGOUTBOX_LISTEN_DSN"),
        )
    if settings.database.pool_max < MIN_CONNECTIONS:
        yield Problem(
            field="PGOUTBOX_DATABASE__POOL_MAX",
            rule=f"must be at least {MIN_CONNECTIONS}, since a claim and a finalize run side by"
            " side",
            value=str(settings.database.pool_max),
            advice=f"{SIDE_BY_SIDE} is better, for the renewal beside them.",
        )


def _lease(settings: Settings) -> Iterator[Problem]:
    lease, wakeup = settings.lease, settings.wakeup
    if lease.duration < 3 * lease.renew:
        yield Problem(
            field="PGOUTBOX_LEASE__RENEW",
            rule=f"must be at most a third of PGOUTBOX_LEASE__DURATION ({lease.duration:g}), so"
            " that one lost renewal loses no lease",
            value=f"{lease.renew:g}",
            advice=f"Lower it to {_at_most(lease.duration / 3)}, or raise the duration to"
            f" {3 * lease.renew:g}.",
            others=("PGOUTBOX_LEASE__DURATION",),
        )
    if wakeup.max_interval > lease.duration:
        yield Problem(
            field="PGOUTBOX_WAKEUP__MAX_INTERVAL",
            rule=f"must be at most PGOUTBOX_LEASE__DURATION ({lease.duration:g}), or expired leases"
            " wait for the next poll",
            value=f"{wakeup.max_interval:g}",
            advice="A second is the default.",
            others=("PGOUTBOX_LEASE__DURATION",),
        )


def _watched_twice(settings: Settings, environ: Mapping[str, str]) -> Iterator[Problem]:
    names: dict[tuple[str, ...], str] = {}
    for name, database in settings.databases.items():
        place = dsn_place(database.dsn.get_secret_value(), environ)
        if place is None:
            continue
        ours = variable(("databases", name))
        schema = database.schema_name or settings.database.schema_name
        first = names.setdefault((*place, schema), ours)
        if first != ours:
            yield Problem(
                field=f"{ours}__DSN",
                rule=f"leads to the same outbox as {first}__DSN, so that sums would count its"
                " messages twice",
                advice="Remove one of them, or give one another schema.",
                others=(f"{first}__DSN", f"{ours}__SCHEMA", f"{first}__SCHEMA"),
            )


def _at_most(seconds: float) -> str:
    """Short, and not more than that."""
    return f"{math.floor(seconds * 100) / 100 or seconds:g}"


def _drain(settings: Settings) -> Iterator[Problem]:
    drain = settings.drain
    times = DrainTimes(grace=drain.grace, soft=drain.soft)
    needed = times.total + times.margin
    if needed > times.grace:
        yield Problem(
            field="PGOUTBOX_DRAIN__SOFT",
            rule=f"must be at least {needed - times.soft:g} seconds less than PGOUTBOX_DRAIN__GRACE"
            f" ({times.grace:g}): {times.cancel:g} to cancel, {times.release:g} for the last"
            f" release, {times.flush:g} to flush and {times.margin:g} to spare",
            value=f"{times.soft:g}",
            advice=f"Raise the grace to {needed:g} (and the pod's"
            " terminationGracePeriodSeconds with it), or lower this.",
            others=("PGOUTBOX_DRAIN__GRACE",),
        )
