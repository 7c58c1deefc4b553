"""Whether delivered messages can go where the settings say. Facts in, problems out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pgoutbox.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

DAYS_AHEAD = 3
"""Of partitions: how long nobody needs to be able to make one."""

# Asked before the function that makes them is called, since everybody may ask. Hours, not days: a
# day of the session's time zone may have 23 of them.
MISSING = b"""
SELECT count(*)
  FROM generate_series(0, %(ahead)s::integer) AS a (days)
 WHERE NOT EXISTS (
    SELECT
      FROM outbox_archive_partitions() AS p
     WHERE p.since <= date_trunc('day', now(), 'UTC') + make_interval(hours => 24 * a.days)
       AND p.until > date_trunc('day', now(), 'UTC') + make_interval(hours => 24 * a.days))
"""
# What has the name of one of these days without being its partition, as after a DETACH: no day at
# all can be made then.
_IN_THE_WAY = b"""
SELECT c.relname::text
  FROM generate_series(0, %(ahead)s::integer) AS a (days)
 CROSS JOIN LATERAL (
       SELECT date_trunc('day', now(), 'UTC') + make_interval(hours => 24 * a.days) AS day) AS d
  JOIN pg_class c ON c.relname = 'outbox_archive_' || to_char(d.day AT TIME ZONE 'UTC', 'YYYYMMDD')
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s
   AND NOT EXISTS (
       SELECT FROM outbox_archive_partitions() AS p WHERE p.since <= d.day AND p.until > d.day)
 ORDER BY d.day
"""
_DAYS = b"SELECT count(*) FROM outbox_archive_partitions()"
_MISSING_RIGHTS = b"""
SELECT 'INSERT on ' || c.relname
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relname = 'outbox_archive'
   AND NOT has_table_privilege(c.oid, 'INSERT')
UNION ALL
SELECT format('EXECUTE on function %%s(%%s)', p.proname, oidvectortypes(p.proargtypes))
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %(schema)s AND p.proname IN ('outbox_archive_prepare', 'outbox_archive_expire')
   AND NOT has_function_privilege(p.oid, 'EXECUTE')
"""
EXPIRE = "EXECUTE on function outbox_archive_expire(interval)"
PREPARE = "EXECUTE on function outbox_archive_prepare(integer)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The archive as this role sees it."""

    days: int
    """How many partitions it has."""
    missing_days: int
    """Of today and the `DAYS_AHEAD` days after it."""
    missing_rights: Sequence[str]
    in_the_way: Sequence[str] = ()
    """Tables with the names of those days that are not their partitions."""


def read_archive(conn: psycopg.Connection[Any], *, schema: str) -> Archive:
    """Ask for the archive of the schema, which is on the search_path. Raises psycopg.Error."""
    rights = conn.execute(_MISSING_RIGHTS, {"schema": schema}).fetchall()
    [(days,)] = conn.execute(_DAYS).fetchall()
    [(missing,)] = conn.execute(MISSING, {"ahead": DAYS_AHEAD}).fetchall()
    blocking = conn.execute(_IN_THE_WAY, {"ahead": DAYS_AHEAD, "schema": schema}).fetchall()
    return Archive(
        days=days,
        missing_days=missing,
        missing_rights=[right for (right,) in rights],
        in_the_way=[name for (name,) in blocking],
    )


def archive_warnings(
    archive: Archive, mode: Literal["keep", "delete", "archive"], *, role: str
) -> Iterator[Problem]:
    """What keeps delivered messages out of the archive, or old ones in it. Pure."""
    grant = "Grant it as the owner of the tables; see docs/retention.md."
    if mode != "archive":
        if archive.days and EXPIRE in archive.missing_rights:
            yield Problem(
                field=f"role {role}",
                rule=f"lacks {EXPIRE}, so what was archived once stays for ever",
                advice=grant,
            )
        return
    if archive.missing_rights:
        yield Problem(
            field=f"role {role}",
            rule="lacks what the retention mode archive needs: "
            + ", ".join(archive.missing_rights),
            advice=grant,
        )
    for table in archive.in_the_way:
        yield Problem(
            field=table,
            rule="is in the way: it has the name of a day of the archive and is no partition of it,"
            " as after a DETACH, so no new day can be made, this one or another",
            advice=f"As its owner: ALTER TABLE {table} RENAME TO kept_{table}; see"
            " docs/retention.md.",
        )
    if archive.missing_days:
        yield Problem(
            field="outbox_archive",
            rule=f"has no partition for {archive.missing_days} of the {DAYS_AHEAD + 1} days from"
            " today on; what is delivered on such a day stays in the outbox until there is one",
            advice=_who_makes_them(archive),
        )


def _who_makes_them(archive: Archive) -> str:
    if PREPARE in archive.missing_rights:
        return "Call outbox_archive_prepare() as the owner of the tables, every day."
    if archive.in_the_way:
        return "A worker makes them within five minutes once nothing is in the way."
    return "A worker makes them when it starts, and looks again every five minutes."
