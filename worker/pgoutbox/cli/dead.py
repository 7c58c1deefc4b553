"""``pgoutbox dead``: what a person decides about a dead letter."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, TypedDict, Unpack
from uuid import UUID

import click

from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import FAILURE, OK, complain, say, say_json
from pgoutbox.errors import MigrationError, PgOutboxError
from pgoutbox.producer.text import unstorable

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from pgoutbox.database.desk import Decision

    Decide = Callable[..., Decision]

LARGEST_ID = 2**63 - 1

GRANTS = """\
GRANT SELECT, UPDATE (status, attempts, reclaims, lease_version, pending_since, available_at,\
 done_at, ordering_key) ON {schema}.outbox TO {role};\
 GRANT INSERT (action, reason, outbox_id, message_id, destination, details)\
 ON {schema}.outbox_audit TO {role}"""


class Options(TypedDict):
    """What every decision is told."""

    named: int | UUID
    reason: str
    dsn: str | None
    schema: str | None
    as_json: bool


def _reason(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("must not be empty")
    if why := unstorable(text):
        raise click.BadParameter(why)
    return text.strip()


def _named(_ctx: click.Context, _param: click.Parameter, text: str) -> int | UUID:
    if text.isascii() and text.isdecimal():
        if not 1 <= int(text[: len(str(LARGEST_ID)) + 1]) <= LARGEST_ID:
            raise click.BadParameter(f"{text} is not in the range 1<=x<={LARGEST_ID}")
        return int(text)
    try:
        return UUID(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither an id in the outbox (a number) nor a message id (a UUID)"
        ) from None


def _decision(function: Callable[..., int]) -> Callable[..., int]:
    """The arguments of every decision."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        schema_option,
        dsn_option,
        click.option("--reason", required=True, callback=_reason, help="Kept in outbox_audit."),
        click.argument("named", metavar="ID", callback=_named),
    ):
        function = decorate(function)
    return function


@click.group("dead")
def command() -> None:
    """Decide about a dead message. Each decision is kept in outbox_audit.

    ID is the message's id in the outbox, which `pgoutbox status` names, or its message id, as in
    the logs and at the consumer. A lane is what the messages with one ordering key form. Exits with
    1 when nothing was done.
    """


@command.command("skip")
@_decision
def skip(**options: Unpack[Options]) -> int:
    """Let a lane go on without its dead message, which stays dead."""
    from pgoutbox.database import desk  # noqa: PLC0415 - slow

    return _decide(desk.skip, options)


@command.command("requeue")
@_decision
def requeue(**options: Unpack[Options]) -> int:
    """Deliver a dead message after all, with all its attempts and the same message id.

    One that blocks its lane goes before all that wait behind it. One that was skipped is
    delivered out of order.
    """
    from pgoutbox.database import desk  # noqa: PLC0415 - slow

    return _decide(desk.requeue, options)


def _decide(decide: Decide, options: Options) -> int:
    from psycopg import errors  # noqa: PLC0415 - slow

    settings = settings_for(options["dsn"], options["schema"])
    schema = settings.database.schema_name
    with connect(settings) as conn:
        try:
            decision = _decided(conn, decide, options, schema=schema)
        except errors.UndefinedTable as error:
            raise MigrationError(
                f'this role sees no outbox in schema "{schema}" of this database: run'
                " `pgoutbox migrate`, or ask the owner for USAGE on the schema"
            ) from error
        except errors.InsufficientPrivilege as error:
            raise _forbidden(conn, schema) from error
    return _tell(decision, as_json=options["as_json"])


def _decided(
    conn: psycopg.Connection, decide: Decide, options: Options, *, schema: str
) -> Decision:
    from pgoutbox.database.desk import Decision, find  # noqa: PLC0415 - slow

    number = options["named"]
    if isinstance(number, UUID):
        found = find(conn, number, schema=schema)
        if isinstance(found, Decision):
            return found
        number = found
    return decide(conn, number, options["reason"], schema=schema)


def _tell(decision: Decision, *, as_json: bool) -> int:
    if as_json:
        say_json(asdict(decision))
    elif decision.done:
        say(decision.said)
    else:
        complain(decision.said)
    return OK if decision.done else FAILURE


def _forbidden(conn: psycopg.Connection, schema: str) -> PgOutboxError:
    from psycopg import sql  # noqa: PLC0415 - slow

    role, within = (sql.Identifier(name).as_string() for name in (conn.info.user, schema))
    grants = GRANTS.format(schema=within, role=role)
    return PgOutboxError(
        f'this role may not decide about dead messages in schema "{schema}", and nothing was done:'
        f" ask the owner for {grants}"
    )
