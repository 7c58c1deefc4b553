"""Who keeps vacuum from removing what the outbox has finished with: the held xmin horizon.

Dead rows that cannot be removed stay in the way of every claim, and nothing in the outbox itself
shows why. `outbox_horizon` names who holds them, whatever role asks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from psycopg import errors, sql
from psycopg.rows import class_row, scalar_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

LATE_SECONDS = 300.0
"""Age from which a holder is worth a word."""
LATE_TRANSACTIONS = 100
"""What it has to hold back besides: a transaction that began long ago but takes a new snapshot for
each of its statements hardly gets there, and what holds back less does no harm."""
LATE_UNDATED_TRANSACTIONS = 100_000
"""The same where no time is known, as of a slot that is in use: minutes of a busy server."""

# By name in the catalog, which everybody may read. Names are quoted where SQL needs it.
_ACCESS = b"""
SELECT p.oid IS NOT NULL AS exists, has_schema_privilege(n.oid, 'USAGE') AS enters,
       coalesce(has_function_privilege(p.oid, 'EXECUTE'), false) AS calls,
       quote_ident(n.nspname) AS schema, quote_ident(current_user) AS role,
       quote_ident(pg_get_userbyid(p.proowner)) AS owner
  FROM pg_namespace n
  LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = 'outbox_horizon'
 WHERE n.nspname = %(schema)s
"""

UNREADABLE = (errors.UndefinedFunction, errors.InvalidSchemaName, errors.InsufficientPrivilege)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One who holds the horizon back. What does not apply to its kind, or is hidden, is None."""

    kind: str
    """``backend``, ``prepared``, ``slot`` or ``standby``; a newer schema may know more."""
    name: str | None
    """Of a slot, or the global identifier of a prepared transaction."""
    pid: int | None
    role: str | None
    database: str | None
    application: str | None
    state: str | None
    transactions: int
    """How many transactions have begun since the one that it holds the horizon at."""
    seconds: float | None
    """Since its transaction began, so at most this old; or since the slot was left."""

    @property
    def late(self) -> bool:
        """Whether somebody should be told."""
        if self.seconds is None:
            return self.transactions >= LATE_UNDATED_TRANSACTIONS
        return self.seconds >= LATE_SECONDS and self.transactions >= LATE_TRANSACTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The oldest holders at one moment."""

    hidden: bool
    """States and seconds of other roles' sessions are not known: the schema's owner lacks
    ``pg_read_all_stats``."""
    holders: tuple[Holder, ...]
    """The one that the horizon waits for comes first. Statements under way are among them."""

    @property
    def transactions(self) -> int:
        """How far back the horizon is. 0 where nothing holds it."""
        return self.holders[0].transactions if self.holders else 0

    @property
    def seconds(self) -> float | None:
        """For how long it has been held back, at most: 0 where nothing does, None if unknown."""
        return self.holders[0].seconds if self.holders else 0.0

    @property
    def late(self) -> Holder | None:
        """The oldest holder that somebody should be told of."""
        return next((holder for holder in self.holders if holder.late), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may ask, and as whom `outbox_horizon` answers."""

    exists: bool
    enters: bool
    """This role may use the schema."""
    calls: bool
    schema: str
    role: str
    owner: str | None


def access(conn: psycopg.Connection[Any], *, schema: str) -> Access | None:
    """Why `read` returned None, or not everything. None where there is no such schema."""
    with conn.cursor(row_factory=class_row(Access)) as cursor:
        return cursor.execute(_ACCESS, {"schema": schema}).fetchone()


def read(conn: psycopg.Connection[Any], *, schema: str) -> Horizon | None:
    """One call of ``outbox_horizon``; None where it is missing or this role may not call it."""
    try:
        with conn.transaction(), conn.cursor(row_factory=scalar_row) as cursor:
            return parse(cursor.execute(_horizon(schema)).fetchone() or {})
    except UNREADABLE:
        return None


async def read_async(conn: psycopg.AsyncConnection[Any], *, schema: str) -> Horizon | None:
    """As `read`."""
    try:
        async with conn.transaction(), conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(_horizon(schema))
            return parse(await cursor.fetchone() or {})
    except UNREADABLE:
        return None


def parse(answer: Mapping[str, Any]) -> Horizon:
    """Make it from what ``outbox_horizon`` returned. What a newer schema added is left out."""
    names = [field.name for field in fields(Holder)]
    holders = ({name: given[name] for name in names} for given in answer["holders"])
    return Horizon(
        hidden=answer["hidden"],
        holders=tuple(Holder(**holder) for holder in holders),
    )


def _horizon(schema: str) -> sql.Composed:
    return sql.SQL("SELECT {}()").format(sql.Identifier(schema, "outbox_horizon"))
