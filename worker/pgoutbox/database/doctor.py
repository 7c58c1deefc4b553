"""What slows an outbox down or is about to: the state of its tables and of the server. Only reads.

Everything is in catalogues and counters that any role may read, and nothing waits for a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

_CONDITION = b"""
SELECT current_setting('autovacuum')::boolean AS autovacuum,
       current_setting('track_counts')::boolean AS track_counts,
       current_setting('fsync')::boolean AS fsync,
       coalesce((SELECT o.option_value::boolean FROM pg_options_to_table(c.reloptions) AS o
                  WHERE o.option_name = 'autovacuum_enabled'), true) AS table_autovacuum,
       NOT EXISTS (SELECT FROM pg_options_to_table(c.reloptions) AS o
                    WHERE o.option_name = 'autovacuum_vacuum_scale_factor'
                      AND o.option_value::float8 <= 0.05) AS plain_autovacuum,
       age(c.relfrozenxid) AS frozen_age,
       current_setting('autovacuum_freeze_max_age')::bigint AS freeze_max_age,
       pg_stat_get_live_tuples(c.oid) AS live, pg_stat_get_dead_tuples(c.oid) AS dead,
       pg_stat_get_autovacuum_count(c.oid) + pg_stat_get_vacuum_count(c.oid) AS vacuums,
       c.relpages::bigint * current_setting('block_size')::bigint AS table_bytes,
       (SELECT coalesce(sum(x.relpages::bigint), 0)::bigint * current_setting('block_size')::bigint
          FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
         WHERE i.indrelid = c.oid) AS index_bytes,
       ARRAY(SELECT i.indexrelid::regclass::text FROM pg_index AS i
              WHERE i.indrelid = c.oid AND NOT (i.indisvalid AND i.indisready)
              ORDER BY 1) AS invalid_indexes,
       ARRAY(SELECT t.tgname::text FROM pg_trigger AS t
              WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('D', 'R')
                AND t.tgname LIKE '%%outbox%%'
              ORDER BY 1) AS disabled_triggers,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend')::int AS connected,
       current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections,
       (SELECT count(*) FROM pg_locks AS l
         WHERE l.relation = c.oid AND l.database = (SELECT oid FROM pg_database
                                                     WHERE datname = current_database())
           AND NOT l.granted)::int AS waiting_for_locks
  FROM pg_class AS c
  JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relname = 'outbox'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The table of messages and its server at one moment."""

    autovacuum: bool
    track_counts: bool
    fsync: bool
    table_autovacuum: bool
    plain_autovacuum: bool
    """Whether the settings that the migrations gave to the table are gone."""
    frozen_age: int
    """Transactions since all rows of the table were frozen."""
    freeze_max_age: int
    live: int
    """Row versions, as PostgreSQL estimates; as ``dead``."""
    dead: int
    vacuums: int
    """Of the table since the counters began, by hand or not."""
    table_bytes: int
    """As vacuum and analyze last saw it; as ``index_bytes``."""
    index_bytes: int
    invalid_indexes: Sequence[str]
    disabled_triggers: Sequence[str]
    connected: int
    connections: int
    waiting_for_locks: int
    """Sessions that wait for a lock on the table as a whole."""


def read_condition(conn: psycopg.Connection[Any], *, schema: str) -> Condition | None:
    """One look. None where there is no outbox in the schema. Raises psycopg.Error."""
    cursor = conn.cursor(row_factory=class_row(Condition))
    return cursor.execute(_CONDITION, {"schema": schema}).fetchone()
