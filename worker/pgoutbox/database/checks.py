"""What is wrong with a database, as far as workers are concerned: facts in, problems out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgoutbox.database.facts import Facts, Server, read_facts
from pgoutbox.database.migrations import OLDEST_SERVER, available, judge as judge_migrations
from pgoutbox.database.probes import REFUSED_OPTIONS, SELF_TEST_SECONDS
from pgoutbox.database.retention import archive_warnings
from pgoutbox.errors import MigrationError
from pgoutbox.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

PRUNING = "DELETE on outbox"
DIRECT = "Give PGOUTBOX_LISTEN_DSN a DSN that reaches PostgreSQL itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the settings say about the database."""

    schema: str = "public"
    pooler: Literal["auto", "none", "transaction"] = "auto"
    wakeup: Literal["auto", "notify", "poll"] = "auto"
    retention: Literal["keep", "delete", "archive"] = "keep"
    pool_max: int = 3
    destinations: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Problems keep a worker from its work; warnings do not."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    facts: Facts | None = None
    """None where the database could not be asked."""


def check_database(dsn: str, listen_dsn: str, wanted: Wanted) -> Verdict:
    """Ask the database and judge the answers. Raises nothing of psycopg's."""
    try:
        facts = read_facts(dsn, listen_dsn, schema=wanted.schema)
    except psycopg.Error as error:
        return Verdict((_unreachable(error, dsn, listen_dsn),), ())
    return judge(facts, wanted)


def judge(facts: Facts, wanted: Wanted) -> Verdict:
    """Everything that is wrong, at once. Pure."""
    problems = (
        *_server_problems(facts.server),
        *_schema_problems(facts, wanted),
        *_sequence_problems(facts, wanted),
    )
    notify = tuple(_notify(facts, wanted))
    severe = wanted.wakeup == "notify"
    pooler = tuple(_pooler(facts, wanted))
    return Verdict(
        problems + pooler + (notify if severe else ()),
        (() if severe else notify) + tuple(_warnings(facts, wanted)),
        facts,
    )


def _unreachable(error: psycopg.Error, *dsns: str) -> Problem:
    said = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    for dsn in dsns:
        # libpq does not repeat passwords; a server's or a pooler's message is not ours to trust.
        if password := conninfo_to_dict(dsn).get("password"):
            said = said.replace(str(password), "***")
    if REFUSED_OPTIONS in said:
        return Problem(
            field="PGOUTBOX_DSN",
            rule=f"holds options that the pooler does not take: {said}",
            advice="Remove them from the DSN; ALTER ROLE ... SET does the same.",
        )
    return Problem(
        field="database",
        rule=f"does not answer: {said.rstrip('.?')}",
        advice="Check host, port, user and password, and that this machine may connect.",
    )


def _server_problems(server: Server) -> Iterator[Problem]:
    if server.version < OLDEST_SERVER * 10_000:
        yield Problem(
            field="server_version",
            rule=f"must be at least {OLDEST_SERVER}",
            value=f"{server.version // 10_000}",
            advice="Upgrade the server.",
        )
    if server.encoding != "UTF8":
        yield Problem(
            field="server_encoding",
            rule="must be UTF8, or some payloads could not be stored",
            value=server.encoding,
            advice="Use a database that was created with ENCODING 'UTF8'.",
        )
    if server.in_recovery:
        yield Problem(
            field="database",
            rule="is a standby that takes no writes",
            advice="Connect to the primary, for example with target_session_attrs=read-write.",
        )
    if server.read_only:
        yield Problem(
            field="default_transaction_read_only",
            rule="must be off",
            value="on",
            advice=f"ALTER ROLE {server.role} SET default_transaction_read_only = off.",
        )
    if server.isolation != "read committed":
        yield Problem(
            field="default_transaction_isolation",
            rule="must be read committed, or claims fail whenever two workers meet",
            value=server.isolation,
            advice=f"ALTER ROLE {server.role} SET default_transaction_isolation = 'read committed'."
            " ",
        )


def _schema_problems(facts: Facts, wanted: Wanted) -> Iterator[Problem]:
    rights = [right for right in facts.missing_rights if right != PRUNING]
    if rights:
        yield Problem(
            field=f"role {facts.server.role}",
            rule=f"lacks rights in schema {wanted.schema}: {', '.join(rights)}",
            advice="As the owner of the tables: `pgoutbox migrate --roles`, and"
            f" GRANT outbox_dispatcher TO {facts.server.role}.",
        )
    unreadable = any(r.startswith("USAGE") or r.endswith("outbox_migrations") for r in rights)
    if unreadable:
        return
    try:
        judge_migrations(available(), facts.applied, schema=wanted.schema)
    except MigrationError as error:
        yield Problem(field="database", rule=f"is not ready: {error}", advice="")


def _sequence_problems(facts: Facts, wanted: Wanted) -> Iterator[Problem]:
    if facts.sequence is None or facts.newest_id is None or facts.sequence >= facts.newest_id:
        return
    yield Problem(
        field="outbox_id_seq",
        rule=f"is behind the newest message's id ({facts.newest_id}), as after a logical failover,"
        " so that new messages would collide with old ones",
        value=str(facts.sequence),
        advice=f"Run setval('{wanted.schema}.outbox_id_seq', {facts.newest_id}) as its owner.",
    )


def _pooler(facts: Facts, wanted: Wanted) -> Iterator[Problem]:
    if wanted.pooler == "none" and not facts.keeps_options:
        yield Problem(
            field="PGOUTBOX_DATABASE__POOLER",
            rule="says that there is no pooler, but start-up options have no effect",
            value="none",
            advice="Set it to transaction or auto, or connect to PostgreSQL itself.",
        )


def _notify(facts: Facts, wanted: Wanted) -> Iterator[Problem]:
    if facts.notified or wanted.wakeup == "poll":
        return
    only = "" if wanted.wakeup == "notify" else ": polling only"
    other = "auto or poll" if wanted.wakeup == "notify" else "poll"
    yield Problem(
        field="PGOUTBOX_WAKEUP__MODE",
        rule="needs notifications, and one that was sent did not arrive within"
        f" {SELF_TEST_SECONDS:g} seconds{only}",
        value=wanted.wakeup,
        advice=f"{DIRECT}, or set this to {other}.",
    )


def _warnings(facts: Facts, wanted: Wanted) -> Iterator[Problem]:
    server = facts.server
    if PRUNING in facts.missing_rights:
        yield Problem(
            field=f"role {server.role}",
            rule=f"lacks {PRUNING} in schema {wanted.schema}, so finished messages stay for ever",
            advice="Grant it, or delete them by other means.",
        )
    if facts.archive is not None:
        yield from archive_warnings(facts.archive, wanted.retention, role=server.role)
    unserved = sorted(set(facts.owed).difference(wanted.destinations))
    if unserved and wanted.destinations:
        yield Problem(
            field="destinations",
            rule=f"that messages are owed to are not served with these settings:"
            f" {', '.join(unserved)}",
            advice="Make sure that some worker serves them.",
        )
    # A pooler's connections are shared; what one worker takes says nothing then.
    needed, free = wanted.pool_max + 1, server.connections - server.connected
    if facts.keeps_options and free < needed:
        yield Problem(
            field="max_connections",
            rule=f"leaves {max(free, 0)} of {server.connections} connections free, and one worker"
            f" takes up to {needed}",
            advice="Raise it, lower PGOUTBOX_DATABASE__POOL_MAX, or use a pooler.",
        )
